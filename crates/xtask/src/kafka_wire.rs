//! The few requests of Kafka's wire protocol that controlling a test cluster needs.
//!
//! Kafka's own tools do the same in a second of Java each; tests make many topics. Versions of the requests are the
//! newest without tagged fields ("flexible versions" in the protocol guide), all served by Kafka 4.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A connection to one broker's plaintext listener.
#[derive(Debug)]
pub(crate) struct Connection(TcpStream);

/// What a node knows of one partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 0.
    pub index: i32,
    /// Broker id of the leader; -1 while there is none.
    pub leader: i32,
    /// Broker ids of the replicas that are in sync.
    pub in_sync: Vec<i32>,
}

const CREATE_TOPICS: Api = Api {
    key: 19,
    version: 4,
};
const DELETE_TOPICS: Api = Api {
    key: 20,
    version: 3,
};
const METADATA: Api = Api { key: 3, version: 1 };
const CREATE_PARTITIONS: Api = Api {
    key: 37,
    version: 1,
};
const INCREMENTAL_ALTER_CONFIGS: Api = Api {
    key: 44,
    version: 0,
};

#[derive(Clone, Copy)]
struct Api {
    key: i16,
    version: i16,
}

/// How long a broker may take to answer; a frozen one never does.
const TIMEOUT: Duration = Duration::from_secs(15);
const TIMEOUT_MS: i32 = 10_000;
/// Larger than any answer about a few topics.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Connection {
    /// # Errors
    /// Nothing listens there.
    pub(crate) fn open(port: u16) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).context("connect to Kafka")?;
        stream
            .set_read_timeout(Some(TIMEOUT))
            .context("connect to Kafka")?;
        stream
            .set_write_timeout(Some(TIMEOUT))
            .context("connect to Kafka")?;
        Ok(Self(stream))
    }

    pub(crate) fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let mut body = Body::default();
        body.array(1).string(name).int32(partitions).int16(replicas);
        body.array(0).array(configs.len());
        for (key, value) in configs {
            body.string(key).string(value);
        }
        body.int32(TIMEOUT_MS).boolean(false);
        let response = self.call(CREATE_TOPICS, &body)?;
        refused_topic(response, Some(()))
    }

    pub(crate) fn delete_topic(&mut self, name: &str) -> Result<()> {
        let mut body = Body::default();
        body.array(1).string(name).int32(TIMEOUT_MS);
        let response = self.call(DELETE_TOPICS, &body)?;
        refused_topic(response, None)
    }

    pub(crate) fn add_partitions(&mut self, topic: &str, partitions: i32) -> Result<()> {
        let mut body = Body::default();
        // No replica assignment: an absent array has the length -1.
        body.array(1).string(topic).int32(partitions).int32(-1);
        body.int32(TIMEOUT_MS).boolean(false);
        let response = self.call(CREATE_PARTITIONS, &body)?;
        refused_topic(response, Some(()))
    }

    pub(crate) fn alter_topic_config(
        &mut self,
        topic: &str,
        name: &str,
        value: Option<&str>,
    ) -> Result<()> {
        const TOPIC: i8 = 2;
        const SET: i8 = 0;
        const DELETE: i8 = 1;
        let mut body = Body::default();
        body.array(1)
            .int8(TOPIC)
            .string(topic)
            .array(1)
            .string(name);
        match value {
            Some(text) => body.int8(SET).string(text),
            None => body.int8(DELETE).int16(-1),
        };
        body.boolean(false);
        let mut response = self.call(INCREMENTAL_ALTER_CONFIGS, &body)?;
        response.int32()?;
        response.int32()?;
        let code = response.int16()?;
        let message = response.string()?;
        refused(code, message)
    }

    /// How many brokers this one knows, itself included; 0 while it is starting.
    pub(crate) fn broker_count(&mut self) -> Result<usize> {
        let mut body = Body::default();
        body.array(0);
        let mut response = self.call(METADATA, &body)?;
        Ok(usize::try_from(response.int32()?).unwrap_or(0))
    }

    /// Partitions of a topic; empty when the broker knows no such topic.
    pub(crate) fn partitions(&mut self, topic: &str) -> Result<Vec<Partition>> {
        let mut body = Body::default();
        // All topics are asked for: asking for one by name would create it.
        body.int32(-1);
        let mut response = self.call(METADATA, &body)?;
        for _ in 0..response.int32()? {
            response.int32()?;
            response.string()?;
            response.int32()?;
            response.string()?;
        }
        response.int32()?;
        for _ in 0..response.int32()? {
            response.int16()?;
            let name = response.string()?;
            response.int8()?;
            let partitions = response.partitions()?;
            if name.as_deref() == Some(topic) {
                return Ok(partitions);
            }
        }
        Ok(Vec::new())
    }

    fn call(&mut self, api: Api, body: &Body) -> Result<Response> {
        let mut header = Body::default();
        header
            .int16(api.key)
            .int16(api.version)
            .int32(0)
            .string("xtask");
        let length = i32::try_from(header.0.len() + body.0.len()).context("request too long")?;
        let mut frame = length.to_be_bytes().to_vec();
        frame.extend_from_slice(&header.0);
        frame.extend_from_slice(&body.0);
        self.0
            .write_all(&frame)
            .context("send a request to Kafka")?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length).context("read from Kafka")?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > RESPONSE_BYTES_MAX {
            bail!("Kafka announced an answer of {length} bytes");
        }
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).context("read from Kafka")?;
        let mut response = Response { bytes, position: 0 };
        response.int32()?;
        Ok(response)
    }
}

/// The answers about one topic: throttle time, an array of name and error code and, in some, a message.
fn refused_topic(mut response: Response, has_message: Option<()>) -> Result<()> {
    response.int32()?;
    response.int32()?;
    response.string()?;
    let code = response.int16()?;
    let message = match has_message {
        Some(()) => response.string()?,
        None => None,
    };
    refused(code, message)
}

fn refused(code: i16, message: Option<String>) -> Result<()> {
    match code {
        0 => Ok(()),
        _ => bail!(
            "Kafka refuses (error {code}): {}",
            message.unwrap_or_default()
        ),
    }
}

#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn int8(&mut self, value: i8) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn int16(&mut self, value: i16) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn int32(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn boolean(&mut self, value: bool) -> &mut Self {
        self.int8(i8::from(value))
    }

    fn array(&mut self, length: usize) -> &mut Self {
        self.int32(i32::try_from(length).unwrap_or(i32::MAX))
    }

    fn string(&mut self, text: &str) -> &mut Self {
        self.int16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        self.0.extend(text.as_bytes());
        self
    }
}

struct Response {
    bytes: Vec<u8>,
    position: usize,
}

impl Response {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let bytes = rest
            .first_chunk::<N>()
            .context("Kafka's answer is cut short")?;
        self.position += N;
        Ok(*bytes)
    }

    fn int8(&mut self) -> Result<i8> {
        self.take().map(i8::from_be_bytes)
    }

    fn int16(&mut self) -> Result<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn int32(&mut self) -> Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn string(&mut self) -> Result<Option<String>> {
        let Ok(length) = usize::try_from(self.int16()?) else {
            return Ok(None);
        };
        let text = self
            .bytes
            .get(self.position..self.position + length)
            .context("Kafka's answer is cut short")?;
        self.position += length;
        Ok(Some(String::from_utf8_lossy(text).into_owned()))
    }

    fn int32_array(&mut self) -> Result<Vec<i32>> {
        let length = self.int32()?;
        (0..length).map(|_| self.int32()).collect()
    }

    fn partitions(&mut self) -> Result<Vec<Partition>> {
        let count = self.int32()?;
        let mut partitions = Vec::new();
        for _ in 0..count {
            self.int16()?;
            let index = self.int32()?;
            let leader = self.int32()?;
            self.int32_array()?;
            let in_sync = self.int32_array()?;
            partitions.push(Partition {
                index,
                leader,
                in_sync,
            });
        }
        Ok(partitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_cut_short_is_an_error() {
        let mut response = Response {
            bytes: vec![0, 5, b'a'],
            position: 0,
        };
        assert!(response.string().is_err());
    }

    #[test]
    fn nothing_listening_is_an_error() {
        let port = crate::scratch::free_port().unwrap();
        assert!(Connection::open(port).is_err());
    }
}
