//! Whether a server's certificate is to be believed: not at all, by its chain, or by chain and name.

use crate::certificate::{Certificate, Validity};
use crate::error::ConnectError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// The authorities we trust, in webpki's form and as they were read.
#[derive(Debug)]
pub(crate) struct Roots {
    store: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

/// Verifies what the server shows. The proof that it holds the certificate's key is always checked,
/// also where the certificate itself is not.
#[derive(Debug)]
pub(crate) struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// `None`: any certificate will do (`require` and `prefer` without a root certificate).
    roots: Option<Arc<Roots>>,
    /// `verify-full`: the host as the user wrote it.
    expected_name: Option<String>,
}

impl Roots {
    /// Takes authorities from a file; those that cannot be read are passed over, none left is an error.
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, ()> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(certificates.iter().cloned());
        if added == 0 {
            Err(())
        } else {
            Ok(Self {
                store,
                certificates,
            })
        }
    }

    /// The operating system's authorities.
    pub(crate) fn system() -> Result<Self, ConnectError> {
        let found = rustls_native_certs::load_native_certs();
        Self::new(found.certs).map_err(|()| ConnectError::Config {
            keyword: "sslrootcert".into(),
            reason: "the system's certificate store is empty or cannot be read".into(),
            source: found.errors.into_iter().next().map(Into::into),
        })
    }

    pub(crate) fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<(), Error> {
        let facts = Certificate::parse(leaf).ok_or(CertificateError::BadEncoding)?;
        // Trusted by itself, as OpenSSL sees it; webpki refuses an authority as a server.
        if self.certificates.iter().any(|root| root == leaf) {
            return check_validity(&facts, now);
        }
        if facts.is_version_1 {
            return self.verify_version_1(&facts, now, algorithms);
        }
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(leaf)?,
            &self.store,
            intermediates,
            now,
            algorithms.all,
        )
    }

    /// A version 1 certificate has no extensions to obey, so being signed by one of our authorities
    /// is all there is to check. webpki does not read them; `openssl x509 -req` makes them.
    fn verify_version_1(
        &self,
        leaf: &Certificate<'_>,
        now: UnixTime,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<(), Error> {
        let authorities = self
            .certificates
            .iter()
            .filter_map(|der| Certificate::parse(der));
        let signed_by = |authority: &Certificate<'_>| {
            algorithms.all.iter().any(|algorithm| {
                algorithm.signature_alg_id().as_ref() == leaf.signature_algorithm
                    && algorithm.public_key_alg_id().as_ref() == authority.public_key_algorithm
                    && algorithm
                        .verify_signature(authority.public_key, leaf.signed, leaf.signature)
                        .is_ok()
            })
        };
        let mut candidates = authorities
            .filter(|authority| authority.subject == leaf.issuer && authority.may_sign());
        let authority = candidates
            .find(signed_by)
            .ok_or(CertificateError::UnknownIssuer)?;
        check_validity(&authority, now)?;
        check_validity(leaf, now)
    }
}

fn check_validity(certificate: &Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    match certificate.validity_at(i64::try_from(now.as_secs()).unwrap_or(i64::MAX)) {
        Validity::Now => Ok(()),
        Validity::NotYet => Err(CertificateError::NotValidYet.into()),
        Validity::Expired => Err(CertificateError::Expired.into()),
    }
}

impl Verifier {
    pub(crate) fn new(
        provider: &CryptoProvider,
        roots: Option<Arc<Roots>>,
        expected_name: Option<String>,
    ) -> Self {
        Self {
            algorithms: provider.signature_verification_algorithms,
            roots,
            expected_name,
        }
    }

    fn check_name(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let Some(expected) = &self.expected_name else {
            return Ok(());
        };
        let facts = Certificate::parse(leaf).ok_or(CertificateError::BadEncoding)?;
        if facts.is_for(expected) {
            return Ok(());
        }
        Err(match ServerName::try_from(expected.clone()) {
            Ok(expected) => CertificateError::NotValidForNameContext {
                expected,
                presented: facts.names(),
            },
            Err(_) => CertificateError::NotValidForName,
        }
        .into())
    }

    /// The signature of the handshake by the key of a certificate webpki does not read.
    fn verify_with_bare_key(
        &self,
        message: &[u8],
        certificate: &Certificate<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let entry = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signed.scheme);
        let usable = entry.into_iter().flat_map(|(_, algorithms)| *algorithms);
        usable
            .filter(|algorithm| {
                algorithm.public_key_alg_id().as_ref() == certificate.public_key_algorithm
            })
            .find_map(|algorithm| {
                algorithm
                    .verify_signature(certificate.public_key, message, signed.signature())
                    .ok()
            })
            .map(|()| HandshakeSignatureValid::assertion())
            .ok_or_else(|| CertificateError::BadSignature.into())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            roots.verify_chain(end_entity, intermediates, now, self.algorithms)?;
        }
        self.check_name(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match Certificate::parse(cert).filter(|certificate| certificate.is_version_1) {
            Some(certificate) => self.verify_with_bare_key(message, &certificate, dss),
            None => verify_tls12_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match Certificate::parse(cert).filter(|certificate| certificate.is_version_1) {
            // TLS 1.3 has no use for the older RSA padding.
            Some(_) if is_pkcs1(dss.scheme) => Err(CertificateError::BadSignature.into()),
            Some(certificate) => self.verify_with_bare_key(message, &certificate, dss),
            None => verify_tls13_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn is_pkcs1(scheme: SignatureScheme) -> bool {
    matches!(
        scheme,
        SignatureScheme::RSA_PKCS1_SHA1
            | SignatureScheme::RSA_PKCS1_SHA256
            | SignatureScheme::RSA_PKCS1_SHA384
            | SignatureScheme::RSA_PKCS1_SHA512
    )
}
