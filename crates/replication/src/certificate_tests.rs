//! Certificates made for the purpose, and bytes that are none.

use super::*;
use crate::tls_verify::Roots;
use proptest::prelude::*;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::time::Duration;

#[path = "../tests/support/certificates.rs"]
mod certificates;
use certificates::{Authority, Pair, self_signed};

fn facts(pair: &Pair) -> Certificate<'_> {
    Certificate::parse(&pair.certificate_der).unwrap()
}

#[test]
fn names_follow_libpqs_rules() {
    let authority = Authority::new("right");
    for (common_name, names, host, expected) in [
        ("db.internal", &[][..], "db.internal", true),
        ("db.internal", &[], "DB.INTERNAL", true),
        ("db.internal", &[], "db.internal.", false),
        ("db.internal", &[], "internal", false),
        // A name of the host's kind shuts the common name out.
        ("db.internal", &["other.internal"], "db.internal", false),
        ("db.internal", &["other.internal"], "other.internal", true),
        ("db.internal", &["192.0.2.1"], "db.internal", true),
        ("192.0.2.1", &["db.internal"], "192.0.2.1", true),
        ("192.0.2.1", &["192.0.2.9"], "192.0.2.1", false),
        ("x", &["192.0.2.1", "::1"], "192.0.2.1", true),
        ("x", &["192.0.2.1", "::1"], "::1", true),
        ("x", &["192.0.2.1", "::1"], "0:0:0:0:0:0:0:1", true),
        ("x", &["192.0.2.1"], "192.0.2.10", false),
        // A wildcard is one whole leftmost label.
        ("x", &["*.internal"], "db.internal", true),
        ("x", &["*.internal"], "DB.Internal", true),
        ("x", &["*.internal"], "a.db.internal", false),
        ("x", &["*.internal"], "internal", false),
        ("x", &["*.internal"], ".internal", false),
        ("*.internal", &[], "db.internal", true),
        ("d*.internal", &[], "db.internal", false),
        ("*", &[], "db", false),
        ("*.", &[], "db.", false),
        ("", &[], "", false),
    ] {
        let pair = authority.issue(common_name, names);
        assert_eq!(
            facts(&pair).is_for(host),
            expected,
            "{common_name} {names:?} for {host}"
        );
    }
}

#[test]
fn a_zero_byte_does_not_shorten_a_name() {
    let pair = Authority::new("right").issue("db.internal\0.evil.example", &[]);
    assert!(!facts(&pair).is_for("db.internal"));
    assert!(!facts(&pair).is_for("db.internal\0.evil.example"));
}

#[test]
fn validity_is_read_in_both_forms() {
    let authority = Authority::new("right");
    let pair = authority.issue_expired("x", &[]);
    let certificate = facts(&pair);
    // 2019-01-01 and 2020-01-01.
    assert_eq!(
        (certificate.not_before, certificate.not_after),
        (1_546_300_800, 1_577_836_800)
    );
    assert_eq!(certificate.validity_at(1_546_300_799), Validity::NotYet);
    assert_eq!(certificate.validity_at(1_546_300_800), Validity::Now);
    assert_eq!(certificate.validity_at(1_577_836_801), Validity::Expired);
    let pair = authority.issue_with("x", &[], |params| {
        params.not_before = rcgen::date_time_ymd(1969, 3, 1);
        params.not_after = rcgen::date_time_ymd(2400, 2, 29);
    });
    let certificate = facts(&pair);
    assert_eq!(
        (certificate.not_before, certificate.not_after),
        (-26_438_400, 13_574_563_200)
    );
}

#[test]
fn the_binding_hash_is_that_of_the_signature() {
    use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
    let sha256 = Authority::with_algorithm("a", &PKCS_ECDSA_P256_SHA256).issue("x", &[]);
    assert_eq!(
        facts(&sha256).end_point(),
        Some(Sha256::digest(&sha256.certificate_der).to_vec())
    );
    let sha384 = Authority::with_algorithm("a", &PKCS_ECDSA_P384_SHA384).issue("x", &[]);
    assert_eq!(
        facts(&sha384).end_point(),
        Some(Sha384::digest(&sha384.certificate_der).to_vec())
    );
    let none = Authority::with_algorithm("a", &PKCS_ED25519).issue("x", &[]);
    assert_eq!(facts(&none).end_point(), None);
}

#[test]
fn signature_algorithms_map_to_their_hash() {
    let rsa = |number: u8| vec![6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, number, 5, 0];
    let ecdsa = |number: u8| vec![6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, number];
    for (algorithm, expected) in [
        (rsa(4), Some(Hash::Sha256)),
        (rsa(5), Some(Hash::Sha256)),
        (rsa(11), Some(Hash::Sha256)),
        (rsa(12), Some(Hash::Sha384)),
        (rsa(13), Some(Hash::Sha512)),
        (rsa(14), Some(Hash::Sha224)),
        (rsa(99), None),
        (ecdsa(1), Some(Hash::Sha224)),
        (ecdsa(2), Some(Hash::Sha256)),
        (ecdsa(3), Some(Hash::Sha384)),
        (ecdsa(4), Some(Hash::Sha512)),
        (
            vec![6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1],
            Some(Hash::Sha256),
        ),
        // RSASSA-PSS with SHA-384, and with the default.
        (
            [
                &[
                    6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10, 0x30, 0x11, 0xa0, 0x0f,
                ][..],
                &[
                    0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2, 5, 0,
                ],
            ]
            .concat(),
            Some(Hash::Sha384),
        ),
        (
            vec![6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10, 0x30, 0],
            Some(Hash::Sha256),
        ),
        // Ed25519.
        (vec![6, 3, 0x2b, 0x65, 0x70], None),
        (Vec::new(), None),
    ] {
        assert_eq!(signature_hash(&algorithm), expected, "{algorithm:02x?}");
    }
}

#[test]
fn the_public_key_is_found() {
    use rcgen::PublicKeyData;
    let authority = Authority::new("right");
    for pair in [
        authority.issue("x", &["x"]),
        authority.issue_version_1("x"),
        self_signed("x"),
    ] {
        assert_eq!(
            facts(&pair).public_key_info,
            pair.key.subject_public_key_info()
        );
    }
}

#[test]
fn only_marked_authorities_and_old_self_signed_ones_may_sign() {
    let authority = Authority::new("right");
    assert!(!facts(&authority.issue("x", &[])).may_sign());
    assert!(facts(&self_signed("x")).may_sign());
    let old = authority.issue_version_1("x");
    assert!(facts(&old).is_version_1 && !facts(&old).may_sign());
}

/// Verifies a chain of one certificate now.
fn chain_error(roots: &[&str], leaf: &Pair) -> Option<String> {
    use rustls::pki_types::pem::PemObject;
    let roots = roots
        .iter()
        .map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let leaf = CertificateDer::from(leaf.certificate_der.clone());
    let outcome = Roots::new(roots.collect())
        .unwrap()
        .verify_chain(&leaf, &[], now, algorithms);
    outcome.err().map(|error| crate::tls::describe(&error))
}

#[test]
fn old_certificates_need_a_valid_signature_of_an_authority() {
    let (right, wrong) = (Authority::new("right"), Authority::new("right"));
    let old = right.issue_version_1("db.internal");
    assert_eq!(chain_error(&[&wrong.pem, &right.pem], &old), None);
    let unknown = chain_error(&[&wrong.pem], &old).unwrap();
    assert!(unknown.contains("not signed by an authority"), "{unknown}");
    // One flipped bit of the signature.
    let mut tampered = right.issue_version_1("db.internal");
    let last = tampered.certificate_der.len() - 1;
    tampered.certificate_der[last] ^= 1;
    assert!(chain_error(&[&right.pem], &tampered).is_some());
}

#[test]
fn a_certificate_trusted_by_itself_must_still_be_valid() {
    let own = self_signed("db.internal");
    assert_eq!(chain_error(&[&own.certificate_pem], &own), None);
    let expired = Authority::new("right").issue_expired("db.internal", &[]);
    let reason = chain_error(&[&expired.certificate_pem], &expired).unwrap();
    assert!(reason.contains("has expired"), "{reason}");
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(Certificate::parse(&bytes).map(|certificate| certificate.end_point()));
    }

    #[test]
    fn a_broken_certificate_never_panics(at in 0usize..400, byte in any::<u8>(), end in 0usize..500) {
        let mut der = self_signed("db.internal").certificate_der;
        let at = at % der.len();
        der[at] = byte;
        der.truncate(end.max(1));
        if let Some(certificate) = Certificate::parse(&der) {
            drop((certificate.is_for("db.internal"), certificate.end_point(), certificate.names()));
        }
    }
}
