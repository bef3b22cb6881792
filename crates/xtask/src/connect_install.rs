//! Fetches Apache Kafka Connect and Debezium's connector once per machine.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::install::{Need, announce, cache_dir, check};
use crate::maven;

/// The version that Posthaste's Connect configurations mean when they name none.
pub const DEBEZIUM_VERSION: &str = "3.6.1.Final";

/// Of Kafka Connect: the newest that this Debezium runs on, which uses a class that 4.4 no longer has.
const CONNECT_VERSION: &str = "4.3.0";

const POM: &str = include_str!("connect.pom.xml");

/// Finds the jars in the cache, or fetches them from Maven Central, and gives their folder. Processes wait for each other.
///
/// # Errors
/// Java 17 or Maven cannot be had, or Maven fails: the text then has what it said.
pub fn ensure_jars() -> Result<PathBuf> {
    let cache = cache_dir()?;
    let folder = cache.join(format!(
        "connect-{CONNECT_VERSION}-debezium-{DEBEZIUM_VERSION}"
    ));
    let lib = folder.join("lib");
    if lib.exists() {
        return Ok(lib);
    }
    fs::create_dir_all(&folder).context("make a folder for Kafka Connect")?;
    let lock = fs::File::create(cache.join("connect.lock")).context("lock the cache folder")?;
    lock.lock().context("lock the cache folder")?;
    if !lib.exists() {
        check(&[Need::Java, Need::Maven])?;
        let pom = POM
            .replace("@CONNECT@", CONNECT_VERSION)
            .replace("@DEBEZIUM@", DEBEZIUM_VERSION);
        announce("fetching Kafka Connect and Debezium");
        maven::fetch(&pom, &lib).context("fetch Kafka Connect and Debezium with Maven")?;
    }
    Ok(lib)
}
