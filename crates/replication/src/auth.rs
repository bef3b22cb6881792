//! Signing in: SCRAM-SHA-256 with and without channel binding, md5, and clear text inside TLS only.

use crate::dsn::Policy;
use crate::error::{AuthFailure, ConnectError};
use crate::message::{Body, server_error, tag_name};
use crate::secret::Secret;
use crate::wire::{Message, STRANGER_BYTES_MAX, Wire};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// What signing in needs to know.
#[derive(Debug)]
pub(crate) struct Credentials<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: Option<Secret>,
    pub(crate) channel_binding: Policy,
    /// Whether the bytes are inside TLS.
    pub(crate) encrypted: bool,
    /// `tls-server-end-point` of the server's certificate; `None` without TLS, and for certificates
    /// whose signature has no hash of its own (Ed25519).
    pub(crate) end_point: Option<Vec<u8>>,
}

/// Answers the server's requests until AuthenticationOk.
///
/// # Errors
///
/// `Server` for a refusal, `Auth` for what we refuse, `Protocol` for a server out of step.
pub(crate) async fn sign_in<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    credentials: &Credentials<'_>,
) -> Result<(), ConnectError> {
    match next_request(wire).await? {
        Request::Ok => credentials.bound_or_free(&wire.target),
        Request::Sasl(mechanisms) => {
            scram(wire, credentials, &mechanisms).await?;
            expect_ok(wire).await
        }
        Request::Md5(salt) => {
            credentials.bound_or_free(&wire.target)?;
            let password = credentials.password(&wire.target)?;
            let hash = md5_hash(credentials.user.as_bytes(), password.expose(), salt);
            wire.encode(|output| frontend::password_message(hash.as_bytes(), output))?;
            wire.flush().await?;
            expect_ok(wire).await
        }
        Request::CleartextPassword => {
            credentials.bound_or_free(&wire.target)?;
            if !credentials.encrypted {
                return Err(ConnectError::auth(
                    AuthFailure::ClearText,
                    &wire.target,
                    "the server asks for the password in clear text on a connection without TLS; use sslmode=require or stricter, or scram-sha-256 in pg_hba.conf",
                ));
            }
            let password = credentials.password(&wire.target)?;
            wire.encode(|output| frontend::password_message(password.expose(), output))?;
            wire.flush().await?;
            expect_ok(wire).await
        }
        Request::Unsupported(name) => Err(ConnectError::auth(
            AuthFailure::Method,
            &wire.target,
            format!("the server asks for {name}, which is not supported"),
        )),
        Request::SaslContinue(_) | Request::SaslFinal(_) => Err(out_of_step()),
    }
}

/// An Authentication message.
enum Request {
    Ok,
    CleartextPassword,
    Md5([u8; 4]),
    Sasl(Vec<String>),
    SaslContinue(Vec<u8>),
    SaslFinal(Vec<u8>),
    Unsupported(String),
}

impl Request {
    fn parse(message: &Message) -> Result<Self, ConnectError> {
        if message.tag != b'R' {
            let context = format!("message {} while signing in", tag_name(message.tag));
            return Err(ConnectError::protocol(context));
        }
        let mut body = Body::new(b'R', &message.body);
        Ok(match body.i32()? {
            0 => Self::Ok,
            3 => Self::CleartextPassword,
            5 => Self::Md5(body.array()?),
            10 => Self::Sasl(mechanisms(body)?),
            11 => Self::SaslContinue(body.rest().to_vec()),
            12 => Self::SaslFinal(body.rest().to_vec()),
            2 => Self::Unsupported("Kerberos V5".into()),
            6 => Self::Unsupported("SCM credentials".into()),
            7 | 8 => Self::Unsupported("GSSAPI".into()),
            9 => Self::Unsupported("SSPI".into()),
            code => Self::Unsupported(format!("authentication method {code}")),
        })
    }
}

impl Credentials<'_> {
    fn password(&self, target: &str) -> Result<&Secret, ConnectError> {
        self.password.as_ref().ok_or_else(|| {
            ConnectError::auth(AuthFailure::NoPassword, target, "the server asks for a password and none is given (password, PGPASSWORD or a line in the password file)")
        })
    }

    /// Ways in without channel binding are closed when it is required: whoever is in the middle
    /// would simply not offer it.
    fn bound_or_free(&self, target: &str) -> Result<(), ConnectError> {
        if self.channel_binding == Policy::Require {
            return Err(ConnectError::auth(
                AuthFailure::ChannelBinding,
                target,
                "channel_binding=require, but the server did not ask for SCRAM with channel binding",
            ));
        }
        Ok(())
    }

    /// Picks the mechanism and what it says about binding, as RFC 5802 section 6 tells.
    fn mechanism(
        &self,
        target: &str,
        offered: &[String],
    ) -> Result<(&'static str, ChannelBinding), ConnectError> {
        let offers = |name: &str| offered.iter().any(|offer| offer == name);
        let usable = self
            .end_point
            .as_ref()
            .filter(|_| self.channel_binding != Policy::Disable);
        if let Some(end_point) = usable.filter(|_| offers(SCRAM_SHA_256_PLUS)) {
            let binding = ChannelBinding::tls_server_end_point(end_point.clone());
            return Ok((SCRAM_SHA_256_PLUS, binding));
        }
        if self.channel_binding == Policy::Require {
            let reason = match (self.encrypted, &self.end_point) {
                (false, _) => "channel_binding=require, but the connection is without TLS",
                (true, None) => {
                    "channel_binding=require, but the certificate's signature has no hash to bind to"
                }
                (true, Some(_)) => {
                    "channel_binding=require, but the server does not offer SCRAM-SHA-256-PLUS"
                }
            };
            return Err(ConnectError::auth(
                AuthFailure::ChannelBinding,
                target,
                reason,
            ));
        }
        if !offers(SCRAM_SHA_256) {
            let offered = offered.iter().map(|name| name.escape_debug().to_string());
            let offered = offered.collect::<Vec<_>>().join(", ");
            let reason = format!("the server offers only {offered}, which is not supported");
            return Err(ConnectError::auth(AuthFailure::Method, target, reason));
        }
        // "We could bind, you did not offer it": the server then notices a stripped offer.
        let binding = match usable {
            Some(_) => ChannelBinding::unrequested(),
            None => ChannelBinding::unsupported(),
        };
        Ok((SCRAM_SHA_256, binding))
    }
}

/// The SCRAM exchange; returns only after the server proved that it knows the password's verifier.
async fn scram<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    credentials: &Credentials<'_>,
    offered: &[String],
) -> Result<(), ConnectError> {
    let (mechanism, binding) = credentials.mechanism(&wire.target, offered)?;
    let password = credentials.password(&wire.target)?;
    let mut scram = ScramSha256::new(password.expose(), binding);
    wire.encode(|output| frontend::sasl_initial_response(mechanism, scram.message(), output))?;
    wire.flush().await?;
    let Request::SaslContinue(challenge) = next_request(wire).await? else {
        return Err(out_of_step());
    };
    scram
        .update(&challenge)
        .map_err(|error| scram_failed(&wire.target, error))?;
    wire.encode(|output| frontend::sasl_response(scram.message(), output))?;
    wire.flush().await?;
    let Request::SaslFinal(proof) = next_request(wire).await? else {
        return Err(out_of_step());
    };
    scram
        .finish(&proof)
        .map_err(|error| scram_failed(&wire.target, error))
}

fn scram_failed(target: &str, error: io::Error) -> ConnectError {
    ConnectError::Auth {
        kind: AuthFailure::ServerProof,
        target: target.to_owned(),
        reason: "the server's part of the SCRAM exchange is not valid".into(),
        source: Some(error.into()),
    }
}

/// The next Authentication message; a refusal comes as the server's error.
async fn next_request<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
) -> Result<Request, ConnectError> {
    let message = wire.message(STRANGER_BYTES_MAX).await?;
    if message.tag == b'E' {
        let error = server_error(b'E', &message.body)?;
        return Err(ConnectError::at_start(&wire.target, error));
    }
    Request::parse(&message)
}

async fn expect_ok<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
) -> Result<(), ConnectError> {
    match next_request(wire).await? {
        Request::Ok => Ok(()),
        _ => Err(out_of_step()),
    }
}

fn out_of_step() -> ConnectError {
    ConnectError::protocol("authentication messages out of order")
}

fn mechanisms(mut body: Body<'_>) -> Result<Vec<String>, ConnectError> {
    let mut names = Vec::new();
    loop {
        let name = body.text()?;
        if name.is_empty() {
            return Ok(names);
        }
        names.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(end_point: Option<&[u8]>, channel_binding: Policy) -> Credentials<'static> {
        Credentials {
            user: "app",
            password: Some(Secret::new("hunter2")),
            channel_binding,
            encrypted: true,
            end_point: end_point.map(<[u8]>::to_vec),
        }
    }

    fn first_message(credentials: &Credentials<'_>, offered: &[&str]) -> Result<String, String> {
        let offered = offered
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>();
        let (mechanism, binding) = credentials
            .mechanism("db", &offered)
            .map_err(|error| error.to_string())?;
        let scram = ScramSha256::new(b"", binding);
        let text = String::from_utf8_lossy(scram.message()).into_owned();
        let header = text.split_once("n=").map(|(header, _)| header.to_owned());
        Ok(format!("{mechanism} {}", header.unwrap_or_default()))
    }

    const BOTH: &[&str] = &["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];

    #[test]
    fn binding_is_used_where_both_sides_can() {
        let able = credentials(Some(b"hash"), Policy::Prefer);
        assert_eq!(
            first_message(&able, BOTH).unwrap(),
            "SCRAM-SHA-256-PLUS p=tls-server-end-point,,"
        );
        assert_eq!(
            first_message(&able, &["SCRAM-SHA-256"]).unwrap(),
            "SCRAM-SHA-256 y,,"
        );
        let unable = credentials(None, Policy::Prefer);
        assert_eq!(first_message(&unable, BOTH).unwrap(), "SCRAM-SHA-256 n,,");
        let unwilling = credentials(Some(b"hash"), Policy::Disable);
        assert_eq!(
            first_message(&unwilling, BOTH).unwrap(),
            "SCRAM-SHA-256 n,,"
        );
    }

    #[test]
    fn required_binding_is_never_given_up() {
        let strict = credentials(Some(b"hash"), Policy::Require);
        assert!(first_message(&strict, BOTH).is_ok());
        let refusal = first_message(&strict, &["SCRAM-SHA-256"]).unwrap_err();
        assert!(
            refusal.contains("does not offer SCRAM-SHA-256-PLUS"),
            "{refusal}"
        );
        let refusal = first_message(&credentials(None, Policy::Require), BOTH).unwrap_err();
        assert!(refusal.contains("no hash to bind to"), "{refusal}");
        assert!(strict.bound_or_free("db").is_err());
    }

    #[test]
    fn unknown_mechanisms_are_named() {
        let refusal = first_message(&credentials(None, Policy::Prefer), &["OAUTHBEARER"]);
        assert!(refusal.unwrap_err().contains("only OAUTHBEARER"));
    }

    /// Plays `server` to a client that signs in, and gives back the outcome and what it sent.
    async fn play(
        server: &[u8],
        credentials: &Credentials<'_>,
    ) -> (Result<(), ConnectError>, Vec<u8>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (ours, mut theirs) = tokio::io::duplex(4096);
        theirs.write_all(server).await.unwrap();
        let outcome = sign_in(&mut Wire::new(ours, "db".into()), credentials).await;
        theirs.shutdown().await.unwrap();
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        (outcome, sent)
    }

    fn request(code: i32, rest: &[u8]) -> Vec<u8> {
        let mut message = vec![b'R'];
        message.extend((8 + i32::try_from(rest.len()).unwrap()).to_be_bytes());
        message.extend(code.to_be_bytes());
        message.extend(rest);
        message
    }

    #[tokio::test]
    async fn clear_text_is_sent_inside_tls_only() {
        let script = [request(3, b""), request(0, b"")].concat();
        let (outcome, sent) = play(&script, &credentials(None, Policy::Prefer)).await;
        assert!(outcome.is_ok());
        assert_eq!(sent, b"p\0\0\0\x0chunter2\0");
        let plain = Credentials {
            encrypted: false,
            ..credentials(None, Policy::Prefer)
        };
        let (outcome, sent) = play(&script, &plain).await;
        assert!(outcome.unwrap_err().to_string().contains("clear text"));
        assert_eq!(sent, b"", "nothing of the password may leave");
    }

    #[tokio::test]
    async fn a_missing_password_is_said_so() {
        let nobody = Credentials {
            password: None,
            ..credentials(None, Policy::Prefer)
        };
        for script in [
            request(3, b""),
            request(5, b"salt"),
            request(10, b"SCRAM-SHA-256\0\0"),
        ] {
            let (outcome, _) = play(&script, &nobody).await;
            assert!(outcome.unwrap_err().to_string().contains("none is given"));
        }
    }

    #[tokio::test]
    async fn unsupported_methods_are_named() {
        for (code, name) in [
            (2, "Kerberos"),
            (7, "GSSAPI"),
            (9, "SSPI"),
            (99, "method 99"),
        ] {
            let (outcome, _) = play(&request(code, b""), &credentials(None, Policy::Prefer)).await;
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }

    #[tokio::test]
    async fn a_server_that_skips_its_proof_is_not_believed() {
        let script = [request(10, b"SCRAM-SHA-256\0\0"), request(0, b"")].concat();
        let (outcome, _) = play(&script, &credentials(None, Policy::Prefer)).await;
        assert!(matches!(outcome, Err(ConnectError::Protocol { .. })));
    }

    #[tokio::test]
    async fn hostile_challenges_are_refused_without_a_panic() {
        for challenge in [
            &b""[..],
            b"r=x",
            b"r=,s=,i=0",
            b"\xff\xfe",
            b"v=AAAA",
            b"e=no",
        ] {
            let script = [request(10, b"SCRAM-SHA-256\0\0"), request(11, challenge)].concat();
            let (outcome, _) = play(&script, &credentials(None, Policy::Prefer)).await;
            assert!(
                matches!(outcome, Err(ConnectError::Auth { .. })),
                "{challenge:?}"
            );
        }
    }

    /// Answers the client's first message with a challenge that repeats its nonce, then `last`.
    async fn challenge(challenge: &str, last: &[u8]) -> ConnectError {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let challenge = challenge.to_owned();
        let last = request(12, last);
        let server = tokio::spawn(async move {
            theirs
                .write_all(&request(10, b"SCRAM-SHA-256\0\0"))
                .await
                .unwrap();
            let mut first = vec![0; 1024];
            let count = theirs.read(&mut first).await.unwrap();
            let text = String::from_utf8_lossy(&first[..count]).into_owned();
            let nonce = text.split_once("r=").unwrap().1;
            let challenge = challenge.replace("NONCE", nonce);
            theirs
                .write_all(&request(11, challenge.as_bytes()))
                .await
                .unwrap();
            theirs.write_all(&last).await.unwrap();
            theirs.shutdown().await.unwrap();
            let mut rest = Vec::new();
            drop(theirs.read_to_end(&mut rest).await);
        });
        let mut wire = Wire::new(ours, "db".into());
        let outcome = sign_in(&mut wire, &credentials(None, Policy::Prefer)).await;
        drop(wire);
        server.await.unwrap();
        outcome.unwrap_err()
    }

    #[tokio::test]
    async fn a_server_that_does_not_know_the_password_is_not_believed() {
        let good = "r=NONCEmore,s=c2FsdA==,i=4096";
        for last in [
            &b"v=AAAA"[..],
            b"v=",
            b"v=!!!!",
            b"e=other-error",
            b"",
            b"\xff",
        ] {
            let error = challenge(good, last).await;
            assert!(
                matches!(error, ConnectError::Auth { .. }),
                "{last:?}: {error}"
            );
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[tokio::test]
    async fn a_challenge_out_of_bounds_is_refused() {
        for text in [
            "r=NONCEmore,s=c2FsdA==,i=4294967295",
            "r=NONCEmore,s=c2FsdA==,i=99999999999999999999",
            "r=NONCEmore,s=c2FsdA==,i=-1",
            "r=NONCEmore,s=%%%,i=4096",
            "r=NONCEmore,i=4096",
            "r=other,s=c2FsdA==,i=4096",
        ] {
            let error = challenge(text, b"v=AAAA").await;
            assert!(
                matches!(error, ConnectError::Auth { .. }),
                "{text}: {error}"
            );
        }
    }
}
