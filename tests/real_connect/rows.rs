//! Generated rows: columns of every type that the connector maps, sizes from nothing to some 100 kB, NULL and Unicode.

use e2e::random::Random;

/// A column beside those that route: its name, its definition, and values of it as SQL literals.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    definition: &'static str,
    values: &'static [&'static str],
}

const fn column(
    name: &'static str,
    definition: &'static str,
    values: &'static [&'static str],
) -> Column {
    Column {
        name,
        definition,
        values,
    }
}

/// What stands for a generated value.
const TEXT: &str = "@text";
const INTEGER: &str = "@integer";
const FRACTION: &str = "@fraction";
const MOMENT: &str = "@moment";

/// Values at the edges of their types; those that Debezium itself cannot read are left out.
pub(crate) const COLUMNS: &[Column] = &[
    column("c_int2", "int2", &["-32768", "32767", "0"]),
    column(
        "c_int4",
        "int4 DEFAULT 7",
        &["-2147483648", "2147483647", INTEGER],
    ),
    column(
        "c_int8",
        "int8",
        &["-9223372036854775808", "9223372036854775807", INTEGER],
    ),
    column("c_oid", "oid", &["0", "4294967295"]),
    column(
        "c_real",
        "real",
        &["1.1", "1e10", "'NaN'", "'-Infinity'", "1e-40", FRACTION],
    ),
    column(
        "c_double",
        "double precision",
        &[
            "1e8",
            "0.1",
            "5e-324",
            "1.7976931348623157e308",
            // Java before 19 writes it with seventeen digits.
            "2e23",
            "'-0'",
            FRACTION,
            FRACTION,
        ],
    ),
    column(
        "c_numeric",
        "numeric",
        &[
            "1.50",
            "-1234567890123456789012345.678900",
            "1e-20",
            FRACTION,
        ],
    ),
    column(
        "c_price",
        "numeric(10,2)",
        &["123.45", "0.00", "-99999999.99"],
    ),
    column(
        "c_scaled",
        "numeric(20,10)",
        &["0.0000000001", "0", "-12345.5"],
    ),
    column("c_domain", "price", &["99.90", "-0.01"]),
    column("c_money", "money", &["'$1,234.50'", "'-$5.25'", "0.5"]),
    column("c_bool", "bool DEFAULT true", &["true", "false"]),
    column("c_bytea", "bytea", &[r"'\x00726177'", r"'\x'", r"'\xffFE'"]),
    column("c_char", "char(5)", &["'ab'", "''"]),
    column("c_citext", "citext", &["'CiTe'", TEXT]),
    column("c_inet", "inet", &["'10.0.0.1'", "'::1/64'"]),
    column("c_cidr", "cidr", &["'10.0.0.0/8'"]),
    column("c_macaddr", "macaddr", &["'08:00:2b:01:02:03'"]),
    column(
        "c_date",
        "date",
        &[
            "'2024-02-29'",
            "'1969-12-31'",
            "'0044-03-15 BC'",
            "'10000-01-01'",
        ],
    ),
    column(
        "c_time",
        "time",
        &["'01:02:03.5'", "'00:00'", "'23:59:59.999999'"],
    ),
    column("c_time3", "time(3)", &["'01:02:03.123'"]),
    column(
        "c_timetz",
        "timetz",
        &["'12:00:00.5+02'", "'00:00:00-11:30'"],
    ),
    column(
        "c_timestamp",
        "timestamp",
        &[
            "'2024-02-29 12:34:56.789012'",
            "'1969-12-31 23:59:59.9985'",
            MOMENT,
        ],
    ),
    column(
        "c_timestamp3",
        "timestamp(3) DEFAULT now()",
        &[
            "'2024-02-29 12:34:56.789'",
            "'0044-03-15 12:00:00 BC'",
            MOMENT,
        ],
    ),
    column(
        "c_timestamptz",
        "timestamptz",
        &[
            "'2024-02-29 12:34:56.7+02'",
            "'infinity'",
            "'0044-03-15 12:00:00+00 BC'",
            MOMENT,
        ],
    ),
    column(
        "c_timestamptz0",
        "timestamptz(0)",
        &["'2024-02-29 12:34:56+00'", "'10000-01-01 00:00:00+00'"],
    ),
    column(
        "c_interval",
        "interval DEFAULT '1 day'",
        &[
            "'1 year 2 mons 3 days 04:05:06.78'",
            "'-1 years -2 mons +3 days -04:05:06.000001'",
            "'0'",
        ],
    ),
    column("c_bit1", "bit(1)", &["'1'", "'0'"]),
    column("c_bit5", "bit(5)", &["'10101'", "'00000'"]),
    column("c_varbit", "varbit(10)", &["'101'", "'1111111111'", "''"]),
    column(
        "c_hstore",
        "hstore",
        &[r#"'a=>1,b=>NULL,"zebra"=>"q\"x",key_2=>v'"#, "''"],
    ),
    column("c_point", "point", &["'(1,2.5)'", "'(-1.5e300,0)'"]),
    column("c_int4range", "int4range", &["'[1,5)'", "'empty'"]),
    column(
        "c_tstzrange",
        "tstzrange",
        &[r#"'["2024-01-01 00:00:00+00","2024-01-02 00:00:00+00")'"#],
    ),
    column(
        "c_texts",
        "text[]",
        &[r#"'{"a\"b",c,NULL}'"#, "'{}'", "'{é,😀}'"],
    ),
    column("c_ints", "int4[]", &["'{1,NULL,3}'", "'{}'"]),
    column("c_numerics", "numeric(10,2)[]", &["'{1.50,2}'"]),
    column(
        "c_uuids",
        "uuid[]",
        &["'{5f1d7e9c-0000-4000-8000-000000000001}'"],
    ),
    column("c_bools", "bool[]", &["'{t,f,NULL}'"]),
    column("c_doubles", "float8[]", &["'{1.5,NULL}'"]),
    column("c_mood", "mood DEFAULT 'ok'", &["'sad'", "'ok'"]),
    column(
        "c_docid",
        "docid",
        &["'5f1d7e9c-0000-4000-8000-000000000002'"],
    ),
    column("c_xml", "xml", &["'<a/>'", "'<a>é</a>'"]),
    column("c_json", "json", &[r#"' {"a":1}'"#, "'[]'"]),
    column("c_ltree", "ltree", &["'Top.Sub'"]),
    column("c_tsvector", "tsvector", &["'a:1 b:2'"]),
    column("c_letter", "\"char\"", &["'x'"]),
    column("c_name", "name", &["'nm'"]),
    column("c_text", "text DEFAULT 'it''s'", &[TEXT, TEXT, "''"]),
    column(
        "c_uuid",
        "uuid DEFAULT gen_random_uuid()",
        &["'5f1d7e9c-0000-4000-8000-000000000003'"],
    ),
    column("c_today", "date DEFAULT CURRENT_DATE", &["'2024-03-01'"]),
    column("c_amount", "numeric(12,4) DEFAULT 1.5", &["2.25"]),
    column(
        "c_short",
        "varchar(5) DEFAULT 'ab'::varchar",
        &["'xyz'", "'ééééé'"],
    ),
    column("c_flags", "int8 NOT NULL DEFAULT 5", &[INTEGER]),
];

/// What the columns need.
pub(crate) const TYPES: &str = "
    CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN docid AS uuid;";

/// The columns of every type, each after a comma, to end a table's definition.
pub(crate) fn definitions() -> String {
    let columns = COLUMNS.iter();
    columns
        .map(|column| format!(",\n  {} {}", column.name, column.definition))
        .collect()
}

/// Types and the table, whose payload is one of three columns.
pub(crate) fn definition() -> String {
    let columns = definitions();
    format!(
        "{TYPES}
         CREATE TABLE public.outbox (
           id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid text, type text NOT NULL,
           payload jsonb, body bytea, doc text, number bigint NOT NULL,
           occurred_at timestamp(3) NOT NULL, occurred_us timestamp NOT NULL, partition_no int{columns})"
    )
}

/// Names of the topics' last parts. Events without a key go to the last, which has a single partition: which one they
/// get in a larger topic is chance.
pub(crate) const TOPICS: &[&str] = &["eu.order", "eu.invoice", "keyless"];
/// Marks the events on which Debezium's task fails if it expands their payload.
pub(crate) const FAILS: &str = "fails";

const ROWS_A_TRANSACTION: usize = 50;
const FAILING: &[&str] = &[
    "[1, 2]",
    r#"[{"a": 1}]"#,
    r#"{"a": 123456789012345678901234567890}"#,
    r#"{"x": [{"a": 1}, {"a": "s"}]}"#,
];

/// Makes the statements that insert `count` rows, in transactions of some.
pub(crate) fn transactions(random: &mut Random, count: usize, with_failing: bool) -> Vec<String> {
    let rows: Vec<String> = (0..count)
        .map(|n| row(random, n, with_failing && n % 100 == 50))
        .collect();
    rows.chunks(ROWS_A_TRANSACTION)
        .map(|rows| format!("BEGIN; {}; COMMIT", rows.join(";\n")))
        .collect()
}

fn row(random: &mut Random, n: usize, failing: bool) -> String {
    let topic = TOPICS.get(random.below(TOPICS.len())).copied();
    let topic = topic.unwrap_or_default();
    let key = match topic {
        "keyless" if random.percent(50) => "NULL".to_owned(),
        _ => text(random, 12),
    };
    let payload = match failing {
        true => quoted(FAILING.get(random.below(FAILING.len())).unwrap_or(&"[]")),
        false if random.percent(8) => "NULL".to_owned(),
        false => quoted(&json(random, 3)),
    };
    let kind = if failing { FAILS } else { "made" };
    let mut names = vec!["id", "aggregatetype", "aggregateid", "type", "payload"];
    names.extend([
        "body",
        "doc",
        "number",
        "occurred_at",
        "occurred_us",
        "partition_no",
    ]);
    let values = vec![
        format!("'{:08x}-0000-4000-8000-{n:012x}'", random.below(1 << 30)),
        quoted(topic),
        key,
        quoted(kind),
        payload,
        body(random),
        nullable(random, 10, document),
        (random.below(100)).to_string(),
        event_time(random),
        event_time(random),
        partition(random, topic),
    ];
    insert(random, n, "public.outbox", names, values)
}

/// The statement of row `n`: these columns, and those of every type. The first rows go through each column's values in
/// turn, so that no value of them is left to chance.
pub(crate) fn insert(
    random: &mut Random,
    n: usize,
    table: &str,
    mut names: Vec<&str>,
    mut values: Vec<String>,
) -> String {
    for column in COLUMNS {
        if let Some(of_turn) = column.values.get(n) {
            names.push(column.name);
            values.push(literal(random, of_turn));
            continue;
        }
        // A column that is left out has its default, and one that is NULL has not.
        if random.percent(5) {
            continue;
        }
        names.push(column.name);
        let null = random.percent(15) && !column.definition.contains("NOT NULL");
        values.push(if null {
            "NULL".into()
        } else {
            value(random, column)
        });
    }
    format!(
        "INSERT INTO {table} ({}) VALUES ({})",
        names.join(", "),
        values.join(", ")
    )
}

fn value(random: &mut Random, column: &Column) -> String {
    let at = random.below(column.values.len());
    literal(random, column.values.get(at).copied().unwrap_or("NULL"))
}

fn literal(random: &mut Random, value: &str) -> String {
    match value {
        TEXT => text(random, 40),
        INTEGER => integer(random),
        FRACTION => fraction(random),
        MOMENT => moment(random),
        literal => literal.to_owned(),
    }
}

pub(crate) fn nullable(
    random: &mut Random,
    percent: usize,
    make: fn(&mut Random) -> String,
) -> String {
    match random.percent(percent) {
        true => "NULL".into(),
        false => make(random),
    }
}

fn partition(random: &mut Random, topic: &str) -> String {
    match topic {
        "keyless" => "0".into(),
        _ if random.percent(50) => "NULL".into(),
        _ => random.below(3).to_string(),
    }
}

pub(crate) fn integer(random: &mut Random) -> String {
    let below = i64::try_from(random.below(1 << 32)).unwrap_or(0);
    (below - (1 << 31)).to_string()
}

/// Digits of all lengths, so that Java's way of writing them shows.
fn fraction(random: &mut Random) -> String {
    let mantissa = random.number() >> random.below(60);
    let exponent = random.below(30);
    format!("{mantissa}e-{exponent}")
}

/// Between 1906 and 2033, in microseconds.
fn moment(random: &mut Random) -> String {
    let microseconds = random.below(4_000_000_000_000_000);
    format!("timestamp '1906-01-01' + {microseconds} * interval '1 microsecond'")
}

/// As a record's own time, which Kafka takes from 1970 on and not from the future.
pub(crate) fn event_time(random: &mut Random) -> String {
    let microseconds = random.below(1_750_000_000_000_000);
    format!("timestamp '1970-01-01' + {microseconds} * interval '1 microsecond'")
}

const PIECES: &[&str] = &[
    "a", "Z", "7", " ", "-", "_", "\"", "'", "\\", "/", "é", "ß", "中", "😀", "\u{2028}", "\u{1}",
    "\t", "\n", "<", "&", "{", ":",
];

fn words(random: &mut Random, length_max: usize) -> String {
    let length = random.below(length_max) + 1;
    (0..length)
        .map(|_| {
            PIECES
                .get(random.below(PIECES.len()))
                .copied()
                .unwrap_or("x")
        })
        .collect()
}

pub(crate) fn text(random: &mut Random, length_max: usize) -> String {
    quoted(&words(random, length_max))
}

/// Mostly small, seldom as large as messages get.
fn size(random: &mut Random) -> usize {
    match random.below(100) {
        0 => 40_000,
        1..5 => 10_000,
        5..10 => 0,
        _ => 200,
    }
}

fn document(random: &mut Random) -> String {
    let size = size(random);
    match size {
        0 => "''".into(),
        200 => text(random, size),
        _ => format!("repeat({}, {size})", text(random, 3)),
    }
}

pub(crate) fn body(random: &mut Random) -> String {
    let size = size(random);
    match size {
        0 if random.percent(50) => "NULL".into(),
        0 => r"'\x'".into(),
        200 => format!(r"'\x{:016x}{:02x}'", random.number(), random.below(256)),
        _ => format!(
            r"decode(repeat('{:02x}', {size}), 'hex')",
            random.below(256)
        ),
    }
}

/// Members of generated objects. Their types go by name, since Debezium fails on arrays of objects that disagree.
const MEMBERS: &[&str] = &[
    "a",
    "long name",
    "big",
    "s",
    "é",
    "f",
    "flag",
    "list",
    "in",
    "each",
    "empty",
    "{}",
    "none",
    "words",
];

pub(crate) fn json(random: &mut Random, depth: usize) -> String {
    let names: Vec<&str> = MEMBERS
        .iter()
        .filter(|_| random.percent(45))
        .copied()
        .collect();
    object(random, depth, &names)
}

fn object(random: &mut Random, depth: usize, names: &[&str]) -> String {
    let members: Vec<String> = names
        .iter()
        .map(|name| format!("\"{name}\": {}", member(random, depth, name)))
        .collect();
    format!("{{{}}}", members.join(", "))
}

fn member(random: &mut Random, depth: usize, name: &str) -> String {
    match name {
        "a" | "long name" => integer(random),
        "big" => (5_000_000_000 + random.below(1 << 50)).to_string(),
        "f" => format!("{}.{}", random.below(1_000_000), random.below(1_000_000)),
        "flag" => random.percent(50).to_string(),
        "list" => format!("[{}, {}]", random.below(9), random.below(9)),
        "words" => format!("[{}, {}]", string(random), string(random)),
        "empty" => "[]".into(),
        "{}" => "{}".into(),
        "none" => "null".into(),
        "in" if depth > 0 => json(random, depth - 1),
        // Alike in their members: the order of a union goes by the addresses of objects there, and so changes from run to run.
        "each" if depth > 0 => {
            let one = json(random, 0);
            let names = MEMBERS
                .iter()
                .filter(|name| one.contains(&format!("\"{name}\": ")));
            let names: Vec<&str> = names.copied().collect();
            format!("[{one}, {}]", object(random, 0, &names))
        }
        _ => string(random),
    }
}

fn string(random: &mut Random) -> String {
    serde_json::Value::from(words(random, 12)).to_string()
}

/// An SQL literal; backslashes stand for themselves in it.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
