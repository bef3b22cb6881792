//! The few facts of an X.509 certificate that PostgreSQL's rules need and webpki does not give out.
//!
//! Chains of ordinary certificates are verified by webpki. What is read here serves three things:
//! the hash for channel binding, host names by libpq's rules (with the common name as fallback), and
//! the certificates OpenSSL's command line makes by default (version 1, or self-signed and trusted
//! directly), which psql accepts and webpki does not.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use std::net::IpAddr;

const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_3: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// A certificate taken apart; all slices are of the DER bytes it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate<'a> {
    der: &'a [u8],
    /// The part that is signed, with its own header.
    pub(crate) signed: &'a [u8],
    /// AlgorithmIdentifier without its header, the form `rustls-pki-types` compares.
    pub(crate) signature_algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
    /// X.509 version 1 has no extensions.
    pub(crate) is_version_1: bool,
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: &'a [u8],
    not_before: i64,
    not_after: i64,
    /// SubjectPublicKeyInfo with its header.
    pub(crate) public_key_info: &'a [u8],
    pub(crate) public_key_algorithm: &'a [u8],
    pub(crate) public_key: &'a [u8],
    common_name: Option<&'a [u8]>,
    dns_names: Vec<&'a [u8]>,
    addresses: Vec<&'a [u8]>,
    is_authority: bool,
}

/// Where a moment lies against a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    NotYet,
    Now,
    Expired,
}

impl<'a> Certificate<'a> {
    /// Takes DER apart; `None` for anything that is not a certificate.
    pub(crate) fn parse(der: &'a [u8]) -> Option<Self> {
        let mut outer = Der(der).inside(SEQUENCE)?;
        let (signed, mut fields) = outer
            .next_of(SEQUENCE)
            .map(|item| (item.whole, Der(item.content)))?;
        let signature_algorithm = outer.next_of(SEQUENCE)?.content;
        let signature = outer.bit_string()?;

        let version = fields
            .optional(CONTEXT_0)
            .map(|item| Der(item.content).next_of(INTEGER));
        let version = version.map_or(Some([0].as_slice()), |item| item.map(|item| item.content))?;
        fields.next_of(INTEGER)?;
        fields.next_of(SEQUENCE)?;
        let issuer = fields.next_of(SEQUENCE)?.whole;
        let mut validity = Der(fields.next_of(SEQUENCE)?.content);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = fields.next_of(SEQUENCE)?;
        let key = fields.next_of(SEQUENCE)?;
        let mut key_fields = Der(key.content);
        let mut certificate = Self {
            der,
            signed,
            signature_algorithm,
            signature,
            is_version_1: version == [0],
            issuer,
            subject: subject.whole,
            not_before,
            not_after,
            public_key_info: key.whole,
            public_key_algorithm: key_fields.next_of(SEQUENCE)?.content,
            public_key: key_fields.bit_string()?,
            common_name: common_name(Der(subject.content)),
            dns_names: Vec::new(),
            addresses: Vec::new(),
            is_authority: false,
        };
        while let Some(item) = fields.next() {
            if item.tag == CONTEXT_3 {
                certificate.read_extensions(Der(item.content).inside(SEQUENCE)?)?;
            }
        }
        Some(certificate)
    }

    fn read_extensions(&mut self, mut extensions: Der<'a>) -> Option<()> {
        while let Some(extension) = extensions.next() {
            let mut fields = Der(extension.content);
            let id = fields.next_of(OBJECT_ID)?.content;
            fields.optional(BOOLEAN);
            let value = Der(fields.next_of(OCTET_STRING)?.content);
            if id == SUBJECT_ALT_NAME {
                let mut names = value.inside(SEQUENCE)?;
                while let Some(name) = names.next() {
                    match name.tag {
                        DNS_NAME => self.dns_names.push(name.content),
                        IP_ADDRESS => self.addresses.push(name.content),
                        _ => {}
                    }
                }
            } else if id == BASIC_CONSTRAINTS {
                let flag = value.inside(SEQUENCE)?.optional(BOOLEAN);
                self.is_authority = flag.is_some_and(|flag| flag.content == [0xff]);
            }
        }
        Some(())
    }

    pub(crate) fn validity_at(&self, unix_seconds: i64) -> Validity {
        if unix_seconds < self.not_before {
            Validity::NotYet
        } else if unix_seconds > self.not_after {
            Validity::Expired
        } else {
            Validity::Now
        }
    }

    /// Whether it may sign others: marked so, or of the version that cannot be marked and its own issuer.
    pub(crate) fn may_sign(&self) -> bool {
        self.is_authority || (self.is_version_1 && self.issuer == self.subject)
    }

    /// Whether the certificate is for `host`, by libpq's rules: alternative names first, the common
    /// name only where no alternative name is of the host's kind.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        if host.is_empty() {
            return false;
        }
        let address: Option<IpAddr> = host.parse().ok();
        let octets = address.map(|address| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        });
        if self.dns_names.iter().any(|name| name_matches(name, host)) {
            return true;
        }
        if octets
            .as_ref()
            .is_some_and(|octets| self.addresses.contains(&octets.as_slice()))
        {
            return true;
        }
        let has_name_of_this_kind = if octets.is_some() {
            !self.addresses.is_empty()
        } else {
            !self.dns_names.is_empty()
        };
        !has_name_of_this_kind
            && self
                .common_name
                .is_some_and(|name| name_matches(name, host))
    }

    /// The names it is for, for an error text.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.dns_names.iter().chain(&self.common_name);
        names
            .map(|name| name.escape_ascii().to_string())
            .take(8)
            .collect()
    }

    /// `tls-server-end-point` (RFC 5929 section 4.1): the certificate hashed with the hash of its own
    /// signature, SHA-256 standing in for MD5 and SHA-1. `None` where the signature has no such hash.
    pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
        Some(match signature_hash(self.signature_algorithm)? {
            Hash::Sha224 => Sha224::digest(self.der).to_vec(),
            Hash::Sha256 => Sha256::digest(self.der).to_vec(),
            Hash::Sha384 => Sha384::digest(self.der).to_vec(),
            Hash::Sha512 => Sha512::digest(self.der).to_vec(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The hash inside a signature algorithm.
fn signature_hash(algorithm: &[u8]) -> Option<Hash> {
    let mut fields = Der(algorithm);
    let id = fields.next_of(OBJECT_ID)?.content;
    if let Some(number) = id.strip_prefix(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01]) {
        return match number {
            // md5WithRSAEncryption and sha1WithRSAEncryption.
            [4 | 5] | [11] => Some(Hash::Sha256),
            [12] => Some(Hash::Sha384),
            [13] => Some(Hash::Sha512),
            [14] => Some(Hash::Sha224),
            // RSASSA-PSS names its hash in the parameters; SHA-1 if it does not.
            [10] => match fields
                .optional(SEQUENCE)
                .and_then(|item| Der(item.content).optional(CONTEXT_0))
            {
                Some(hash) => named_hash(
                    Der(hash.content)
                        .inside(SEQUENCE)?
                        .next_of(OBJECT_ID)?
                        .content,
                ),
                None => Some(Hash::Sha256),
            },
            _ => None,
        };
    }
    match id {
        // ecdsa-with-SHA1, dsa-with-sha1.
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] | [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03] => {
            Some(Hash::Sha256)
        }
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, number]
        | [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, number] => match number {
            1 => Some(Hash::Sha224),
            2 => Some(Hash::Sha256),
            3 => Some(Hash::Sha384),
            4 => Some(Hash::Sha512),
            _ => None,
        },
        _ => None,
    }
}

/// A hash by its own object identifier.
fn named_hash(id: &[u8]) -> Option<Hash> {
    match id {
        // SHA-1.
        [0x2b, 0x0e, 0x03, 0x02, 0x1a] => Some(Hash::Sha256),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, number] => match number {
            1 => Some(Hash::Sha256),
            2 => Some(Hash::Sha384),
            3 => Some(Hash::Sha512),
            4 => Some(Hash::Sha224),
            _ => None,
        },
        _ => None,
    }
}

/// A wildcard stands for the leftmost label only; a zero byte inside a name is an old trick.
fn name_matches(pattern: &[u8], host: &str) -> bool {
    if pattern.contains(&0) {
        return false;
    }
    if pattern.eq_ignore_ascii_case(host.as_bytes()) {
        return true;
    }
    let Some(suffix) = pattern
        .strip_prefix(b"*")
        .filter(|suffix| suffix.starts_with(b".") && suffix.len() > 1)
    else {
        return false;
    };
    host.split_once('.').is_some_and(|(label, _)| {
        !label.is_empty() && host.as_bytes()[label.len()..].eq_ignore_ascii_case(suffix)
    })
}

/// The first common name of a distinguished name.
fn common_name(mut names: Der<'_>) -> Option<&[u8]> {
    while let Some(set) = names.next() {
        let mut pairs = if set.tag == SET {
            Der(set.content)
        } else {
            continue;
        };
        while let Some(pair) = pairs.next() {
            let mut fields = Der(pair.content);
            if fields.next_of(OBJECT_ID)?.content == COMMON_NAME {
                return fields.next().map(|value| value.content);
            }
        }
    }
    None
}

/// What is left of a run of DER items.
#[derive(Debug, Clone, Copy)]
struct Der<'a>(&'a [u8]);

#[derive(Debug, Clone, Copy)]
struct Item<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Der<'a> {
    fn next(&mut self) -> Option<Item<'a>> {
        let (&[tag, length], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = match length {
            0..=0x7f => (usize::from(length), rest),
            // More than four length bytes would be a certificate beyond 4 GiB; 0x80 is not DER.
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
                (
                    digits
                        .iter()
                        .fold(0, |sum, digit| sum << 8 | usize::from(*digit)),
                    rest,
                )
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        let (whole, _) = self.0.split_at_checked(self.0.len() - after.len())?;
        self.0 = after;
        Some(Item {
            tag,
            content,
            whole,
        })
    }

    fn next_of(&mut self, tag: u8) -> Option<Item<'a>> {
        self.next().filter(|item| item.tag == tag)
    }

    /// The next item if it has this tag; otherwise nothing is taken.
    fn optional(&mut self, tag: u8) -> Option<Item<'a>> {
        if self.0.first() == Some(&tag) {
            self.next()
        } else {
            None
        }
    }

    fn inside(mut self, tag: u8) -> Option<Self> {
        self.next_of(tag).map(|item| Self(item.content))
    }

    fn bit_string(&mut self) -> Option<&'a [u8]> {
        self.next_of(BIT_STRING)?.content.strip_prefix(&[0])
    }

    /// A UTCTime or GeneralizedTime as seconds since 1970.
    fn time(&mut self) -> Option<i64> {
        let item = self.next()?;
        let digits = std::str::from_utf8(item.content).ok()?.strip_suffix('Z')?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (year, rest) = match item.tag {
            UTC_TIME => {
                let year: i64 = digits.get(..2)?.parse().ok()?;
                (
                    if year < 50 { 2000 + year } else { 1900 + year },
                    digits.get(2..)?,
                )
            }
            GENERALIZED_TIME => (digits.get(..4)?.parse().ok()?, digits.get(4..)?),
            _ => return None,
        };
        let number = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
        let (month, day) = (number(0)?, number(2)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || rest.len() != 10 {
            return None;
        }
        let seconds = (number(4)? * 60 + number(6)?) * 60 + number(8)?;
        Some(days_since_1970(year, month, day) * 86_400 + seconds)
    }
}

/// Days in the Gregorian calendar, counted in years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
