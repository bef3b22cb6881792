//! Certificates of every kind psql meets, made for one test and forgotten with it.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey,
    date_time_ymd,
};

/// A certificate with its key.
pub(crate) struct Pair {
    pub(crate) certificate_pem: String,
    pub(crate) certificate_der: Vec<u8>,
    pub(crate) key: KeyPair,
}

/// Somebody who signs.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_algorithm(name, &PKCS_ECDSA_P256_SHA256)
    }

    /// The signature of what it signs has the hash of this algorithm.
    pub(crate) fn with_algorithm(name: &str, algorithm: &'static SignatureAlgorithm) -> Self {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = authority_params(name);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for `names`, with `common_name` as its subject.
    pub(crate) fn issue(&self, common_name: &str, names: &[&str]) -> Pair {
        self.issue_with(common_name, names, |_| {})
    }

    /// One that ended years ago.
    pub(crate) fn issue_expired(&self, common_name: &str, names: &[&str]) -> Pair {
        self.issue_with(common_name, names, |params| {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        })
    }

    pub(crate) fn issue_with(
        &self,
        common_name: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names = names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = distinguished_name(common_name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair {
            certificate_pem: certificate.pem(),
            certificate_der: certificate.der().to_vec(),
            key,
        }
    }

    /// One of version 1, as `openssl x509 -req` makes it: no extensions, the host as common name.
    pub(crate) fn issue_version_1(&self, common_name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let modern = self.issue(common_name, &[]);
        // Serial, issuer, validity and subject are taken from a modern one.
        let outer = items(items(&modern.certificate_der)[0].1);
        let fields = items(outer[0].1);
        let start = usize::from(fields[0].0 == 0xa0);
        let mut body = Vec::new();
        for (_, _, whole) in &fields[start..start + 5] {
            body.extend_from_slice(whole);
        }
        body.extend(key.subject_public_key_info());
        let to_sign = item(0x30, &body);
        let mut signature = vec![0];
        signature.extend(self.issuer.key().sign(&to_sign).unwrap());
        let algorithm = fields[start + 1].2;
        let der = item(
            0x30,
            &[&to_sign, algorithm, &item(0x03, &signature)].concat(),
        );
        Pair {
            certificate_pem: pem(&der),
            certificate_der: der,
            key,
        }
    }
}

/// As the manual's recipe with `openssl req -x509` makes it: its own authority, marked as one.
pub(crate) fn self_signed(common_name: &str) -> Pair {
    let key = KeyPair::generate().unwrap();
    let certificate = authority_params(common_name).self_signed(&key).unwrap();
    Pair {
        certificate_pem: certificate.pem(),
        certificate_der: certificate.der().to_vec(),
        key,
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = distinguished_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Test");
    name.push(DnType::CommonName, common_name);
    name
}

/// DER items in a row: tag, content, and the whole.
fn items(mut der: &[u8]) -> Vec<(u8, &[u8], &[u8])> {
    let mut all = Vec::new();
    while !der.is_empty() {
        let (length, header) = match der[1] {
            short @ 0..=0x7f => (usize::from(short), 2),
            long => {
                let digits = usize::from(long & 0x7f);
                let length = der[2..2 + digits]
                    .iter()
                    .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
                (length, 2 + digits)
            }
        };
        let (whole, rest) = der.split_at(header + length);
        all.push((whole[0], &whole[header..], whole));
        der = rest;
    }
    all
}

fn item(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut der = vec![tag];
    match content.len() {
        length @ 0..=0x7f => der.push(length as u8),
        length => {
            der.push(0x82);
            der.extend((length as u16).to_be_bytes());
        }
    }
    der.extend_from_slice(content);
    der
}

fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for (index, group) in der.chunks(3).enumerate() {
        let bits = (0..3).fold(0u32, |bits, at| {
            bits << 8 | u32::from(*group.get(at).unwrap_or(&0))
        });
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 0x3f;
            text.push(if digit <= group.len() {
                DIGITS[value as usize] as char
            } else {
                '='
            });
        }
        if index % 16 == 15 {
            text.push('\n');
        }
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}
