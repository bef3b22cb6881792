//! Writes the golden corpus where the fuzz targets look for theirs: `corpus/decode` and `corpus/transactions`.

#[path = "../tests/support/corpus.rs"]
mod corpus;
#[path = "../tests/support/exercise.rs"]
mod exercise;

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (decode, transactions) = (fuzz.join("corpus/decode"), fuzz.join("corpus/transactions"));
    fs::create_dir_all(&decode)?;
    fs::create_dir_all(&transactions)?;
    for scenario in corpus::scenarios(&fuzz.join("../tests/golden")) {
        let name = format!("{}-{}", scenario.folder(), scenario.name());
        let messages: Vec<_> = scenario
            .messages
            .iter()
            .map(|message| message.bytes.as_slice())
            .collect();
        for (number, message) in messages.iter().enumerate() {
            fs::write(decode.join(format!("{name}-{number}")), message)?;
        }
        fs::write(transactions.join(name), exercise::stream(messages))?;
    }
    Ok(())
}
