//! Any text, in any format: an answer, never a panic, and no secret in it.

use debezium::{Format, Input, Lookup, offset};
use proptest::prelude::*;

/// Answers everything, with something that has syntax of its own.
struct Anything;

impl Lookup for Anything {
    fn environment(&self, _: &str) -> Option<String> {
        Some("${env:A} s3cret \\u0000".to_owned())
    }

    fn file(&self, _: &str) -> Option<String> {
        Some("a=s3cret\nb:c=${file:x:a}".to_owned())
    }
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![
        Just(Format::Json),
        Just(Format::Properties),
        Just(Format::Yaml),
        Just(Format::Server)
    ]
}

/// Pieces that lead deep into the readers.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("transforms=a,b\n"),
        Just("transforms.a.type=EventRouter\n"),
        Just("transforms.a.predicate=p\n"),
        Just("predicates=p\n"),
        Just("predicates.p.type=TopicNameMatches\n"),
        Just("predicates.p.pattern=(?<a>\n"),
        Just("key.converter=Json\n"),
        Just("value.converter=BinaryData\n"),
        Just("value.converter.delegate.converter.type=Json\n"),
        Just("topic.creation.groups=default,g\n"),
        Just("topic.creation.default.partitions=99999999999\n"),
        Just("topic.creation.default.replication.factor=-7\n"),
        Just("producer.override.sasl.jaas.config=x required a=\"\n"),
        Just("table.include.list=a\\\\.b,[\n"),
        Just("transforms.a.route.topic.replacement=${${x}$\n"),
        Just("a${env:B}=${env:C}${\n"),
        Just("\\u"),
        Just("\\\n"),
        Just("{\"config\":{"),
        Just("\"a\":"),
        Just("null,"),
        Just("}}"),
        Just("kind: KafkaConnector\nspec:\n  config:\n"),
        Just("    a: [\n"),
        Just("- "),
        Just("debezium.format.key=avro\n"),
        Just("debezium.source."),
        Just("é=ü\n"),
    ];
    prop::collection::vec(
        prop_oneof![4 => piece.prop_map(str::to_owned), 1 => any::<String>()],
        0..24,
    )
    .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_text_gets_an_answer(text in pieces(), worker in pieces(), format in formats()) {
        let mut input = Input::new(&text, "any", &Anything);
        input.format = Some(format);
        input.worker = Some(&worker);
        input.secrets_directory = Some("/k8s");
        match debezium::read(&input) {
            Ok(reading) => {
                let shown: String = reading.findings.iter().map(ToString::to_string).collect();
                prop_assert!(!shown.contains("s3cret"), "{}", shown);
                let debug = format!("{reading:?}");
                drop(debug);
                if let Some(native) = &reading.native {
                    prop_assert!(native.to_toml().parse::<toml::Table>().is_ok());
                }
            }
            Err(error) => prop_assert!(!error.to_string().contains("s3cret")),
        }
    }

    #[test]
    fn any_offset_gets_an_answer(text in prop_oneof![any::<String>(), "[\\[\\]{}\",:a-z0-9 \t\n-]{0,60}"]) {
        if let Err(error) = offset::read(&text, "n", "p") {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
