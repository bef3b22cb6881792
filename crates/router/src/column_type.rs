//! Stage 5 of 9, column types: what the connector makes of each of PostgreSQL's, as a schema and a way to read values.

use super::builtin_type::{array_element, builtin_name};
use super::catalog::{Catalog, CatalogTypeKind};
use super::connect_schema::{Field, Kind, Schema};
use super::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, TimeMode, TypeModes};

/// How a column's text becomes a value, and the schema of that value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnType {
    pub(crate) conversion: Conversion,
    pub(crate) schema: Schema,
}

/// How a column's text becomes a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Conversion {
    Text,
    /// The connector knows the schema and loses the value.
    Lost,
    Boolean,
    Integer,
    Float,
    Double,
    Numeric(DecimalMode, NumericScale),
    Money(DecimalMode, i32),
    Bytea(BinaryMode),
    /// The bytes of the text itself.
    Opaque(BinaryMode),
    Date(DateForm),
    Time(TimeForm),
    TimeTz,
    Timestamp(TimeForm),
    /// With so many digits behind the point; 0 for as many as there are.
    TimestampTz(u8),
    Interval(IntervalMode),
    /// One bit.
    Bit,
    Bits,
    Hstore(HstoreMode),
    Point,
    Vector,
    HalfVector,
    SparseVector,
    Geometry,
    Array(Box<ColumnType>),
}

/// Where a numeric's decimal point is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumericScale {
    Fixed(i32),
    /// `numeric` without precision: each value has its own.
    Variable,
}

/// What a date becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DateForm {
    Days,
    Connect,
    Iso,
}

/// What a time or a timestamp becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeForm {
    Millis,
    Micros,
    Nanos,
    Connect,
    Iso,
}

/// What the connector makes of a type; `None`: it leaves such columns out.
pub(crate) fn column_type(
    type_oid: u32,
    type_modifier: i32,
    catalog: &Catalog,
    modes: &TypeModes,
) -> Option<ColumnType> {
    Resolver { catalog, modes }.resolve(type_oid, type_modifier, 0)
}

struct Resolver<'a> {
    catalog: &'a Catalog,
    modes: &'a TypeModes,
}

impl Resolver<'_> {
    fn resolve(&self, oid: u32, modifier: i32, depth: usize) -> Option<ColumnType> {
        if depth > DEPTH_MAX {
            return None;
        }
        if let Some(element) = array_element(oid) {
            let element = self.resolve(element, modifier, depth + 1)?;
            return has_array(oid).then(|| array_of(element, true));
        }
        if let Some(name) = builtin_name(oid) {
            return self.base(name, modifier).or_else(|| self.unknown());
        }
        let known = self.catalog.type_by_oid(oid)?;
        match &known.kind {
            CatalogTypeKind::Domain {
                base_oid,
                type_modifier,
            } => self.resolve(*base_oid, *type_modifier, depth + 1),
            CatalogTypeKind::Enum { labels } => Some(ColumnType {
                conversion: Conversion::Text,
                schema: Schema::named(Kind::String, "io.debezium.data.Enum")
                    .parameter("allowed", labels.join(",")),
            }),
            CatalogTypeKind::Array { element_oid } => self.array(*element_oid, modifier, depth),
            CatalogTypeKind::Base => self.base(&known.name, modifier).or_else(|| self.unknown()),
            CatalogTypeKind::Composite => self.unknown(),
        }
    }

    /// Of a type that is not built in. Arrays of domains the connector does not know.
    fn array(&self, element_oid: u32, modifier: i32, depth: usize) -> Option<ColumnType> {
        let known = self.catalog.type_by_oid(element_oid)?;
        if matches!(known.kind, CatalogTypeKind::Domain { .. }) {
            return self.unknown().map(|element| array_of(element, false));
        }
        let optional = matches!(
            &*known.name,
            "citext" | "ltree" | "hstore" | "geometry" | "geography"
        );
        let element = self.resolve(element_oid, modifier, depth + 1)?;
        Some(array_of(element, optional))
    }

    fn base(&self, name: &str, modifier: i32) -> Option<ColumnType> {
        let plain = |conversion, kind| {
            Some(ColumnType {
                conversion,
                schema: Schema::of(kind),
            })
        };
        let named = |conversion, kind, name: &str| {
            Some(ColumnType {
                conversion,
                schema: Schema::named(kind, name),
            })
        };
        let debezium = |name: &str| named(Conversion::Text, Kind::String, name);
        match name {
            "text" | "varchar" | "bpchar" | "char" | "citext" | "isbn" | "inet" | "cidr"
            | "macaddr" | "macaddr8" | "int4range" | "int8range" | "numrange" | "tsrange"
            | "tstzrange" | "daterange" => plain(Conversion::Text, Kind::String),
            "name" => Some(self.name()),
            "json" | "jsonb" => debezium("io.debezium.data.Json"),
            "uuid" => debezium("io.debezium.data.Uuid"),
            "xml" => debezium("io.debezium.data.Xml"),
            "ltree" => debezium("io.debezium.data.Ltree"),
            "tsvector" => debezium("io.debezium.data.Tsvector"),
            "bool" => plain(Conversion::Boolean, Kind::Boolean),
            "int2" => plain(Conversion::Integer, Kind::Int16),
            "int4" => plain(Conversion::Integer, Kind::Int32),
            "int8" | "oid" => plain(Conversion::Integer, Kind::Int64),
            "float4" => plain(Conversion::Float, Kind::Float32),
            "float8" => plain(Conversion::Double, Kind::Float64),
            "numeric" => Some(self.numeric(modifier)),
            "money" => Some(self.money()),
            "bytea" => Some(self.bytea()),
            "date" => Some(self.date()),
            "time" => Some(self.time(modifier)),
            "timestamp" => Some(self.timestamp(modifier)),
            "timetz" => named(
                Conversion::TimeTz,
                Kind::String,
                "io.debezium.time.ZonedTime",
            ),
            "timestamptz" => named(
                Conversion::TimestampTz(u8::try_from(precision(modifier)).unwrap_or(6)),
                Kind::String,
                "io.debezium.time.ZonedTimestamp",
            ),
            "interval" => self.interval(),
            "bit" | "varbit" => Some(bits(name, modifier)),
            "hstore" => Some(self.hstore()),
            "point" => Some(point()),
            // Optional even where the column is not: its builder says so.
            "geometry" => {
                let of = geometry("io.debezium.data.geometry.Geometry", "Geometry");
                Some(ColumnType {
                    schema: of.schema.optional(),
                    ..of
                })
            }
            "geography" => Some(geometry("io.debezium.data.geometry.Geography", "Geography")),
            "vector" => Some(vector(
                Conversion::Vector,
                Kind::Float64,
                "io.debezium.data.DoubleVector",
            )),
            "halfvec" => Some(vector(
                Conversion::HalfVector,
                Kind::Float32,
                "io.debezium.data.FloatVector",
            )),
            "sparsevec" => Some(sparse_vector()),
            _ => None,
        }
    }

    /// Its value survives only where unknown types do.
    fn name(&self) -> ColumnType {
        ColumnType {
            conversion: if self.modes.include_unknown_datatypes {
                Conversion::Text
            } else {
                Conversion::Lost
            },
            schema: Schema::of(Kind::String),
        }
    }

    /// `include.unknown.datatypes`: the bytes of the text.
    fn unknown(&self) -> Option<ColumnType> {
        let mode = self.modes.binary_handling_mode;
        self.modes.include_unknown_datatypes.then(|| ColumnType {
            conversion: Conversion::Opaque(mode),
            ..self.bytea()
        })
    }

    fn numeric(&self, modifier: i32) -> ColumnType {
        let mode = self.modes.decimal_handling_mode;
        let (precision, scale) = match modifier {
            // pgjdbc takes a negative scale for a large one, and so does Debezium.
            4.. => ((modifier - 4) >> 16, (modifier - 4) & 0xFFFF),
            _ => (0, 0),
        };
        let scale = match modifier {
            4.. => NumericScale::Fixed(scale),
            _ => NumericScale::Variable,
        };
        let schema = match (mode, scale) {
            (DecimalMode::Double, _) => Schema::of(Kind::Float64),
            (DecimalMode::String, _) => Schema::of(Kind::String),
            (DecimalMode::Precise, NumericScale::Fixed(scale)) => {
                decimal(scale).parameter("connect.decimal.precision", precision)
            }
            (DecimalMode::Precise, NumericScale::Variable) => Schema::named(
                Kind::Struct(vec![
                    field("scale", Schema::of(Kind::Int32)),
                    field("value", Schema::of(Kind::Bytes)),
                ]),
                "io.debezium.data.VariableScaleDecimal",
            )
            .doc("Variable scaled decimal"),
        };
        ColumnType {
            conversion: Conversion::Numeric(mode, scale),
            schema,
        }
    }

    fn money(&self) -> ColumnType {
        let digits = i32::from(self.modes.money_fraction_digits);
        let mode = self.modes.decimal_handling_mode;
        ColumnType {
            conversion: Conversion::Money(mode, digits),
            schema: match mode {
                DecimalMode::Precise => decimal(digits),
                DecimalMode::Double => Schema::of(Kind::Float64),
                DecimalMode::String => Schema::of(Kind::String),
            },
        }
    }

    fn bytea(&self) -> ColumnType {
        let mode = self.modes.binary_handling_mode;
        ColumnType {
            conversion: Conversion::Bytea(mode),
            schema: Schema::of(match mode {
                BinaryMode::Bytes => Kind::Bytes,
                _ => Kind::String,
            }),
        }
    }

    fn date(&self) -> ColumnType {
        let (form, kind, name) = match self.modes.time_precision_mode {
            TimeMode::Connect => (DateForm::Connect, Kind::Int32, CONNECT_DATE),
            TimeMode::Isostring => (DateForm::Iso, Kind::String, "io.debezium.time.IsoDate"),
            _ => (DateForm::Days, Kind::Int32, "io.debezium.time.Date"),
        };
        ColumnType {
            conversion: Conversion::Date(form),
            schema: Schema::named(kind, name),
        }
    }

    fn time(&self, modifier: i32) -> ColumnType {
        let mode = match self.modes.time_precision_mode {
            TimeMode::AdaptiveTimeMicroseconds => TimeMode::Microseconds,
            other => other,
        };
        let form = time_form(mode, modifier);
        let (kind, name) = match form {
            TimeForm::Millis => (Kind::Int32, "io.debezium.time.Time"),
            TimeForm::Micros => (Kind::Int64, "io.debezium.time.MicroTime"),
            TimeForm::Nanos => (Kind::Int64, "io.debezium.time.NanoTime"),
            TimeForm::Connect => (Kind::Int32, "org.apache.kafka.connect.data.Time"),
            TimeForm::Iso => (Kind::String, "io.debezium.time.IsoTime"),
        };
        ColumnType {
            conversion: Conversion::Time(form),
            schema: Schema::named(kind, name),
        }
    }

    fn timestamp(&self, modifier: i32) -> ColumnType {
        let form = time_form(self.modes.time_precision_mode, modifier);
        let (kind, name) = match form {
            TimeForm::Millis => (Kind::Int64, TIMESTAMP),
            TimeForm::Micros => (Kind::Int64, MICRO_TIMESTAMP),
            TimeForm::Nanos => (Kind::Int64, NANO_TIMESTAMP),
            TimeForm::Connect => (Kind::Int64, CONNECT_TIMESTAMP),
            TimeForm::Iso => (Kind::String, "io.debezium.time.IsoTimestamp"),
        };
        ColumnType {
            conversion: Conversion::Timestamp(form),
            schema: Schema::named(kind, name),
        }
    }

    fn interval(&self) -> Option<ColumnType> {
        let mode = self.modes.interval_handling_mode;
        Some(ColumnType {
            conversion: Conversion::Interval(mode),
            schema: match mode {
                IntervalMode::Numeric => {
                    Schema::named(Kind::Int64, "io.debezium.time.MicroDuration")
                }
                IntervalMode::String => Schema::named(Kind::String, "io.debezium.time.Interval"),
            },
        })
    }

    fn hstore(&self) -> ColumnType {
        let mode = self.modes.hstore_handling_mode;
        ColumnType {
            conversion: Conversion::Hstore(mode),
            schema: match mode {
                HstoreMode::Json => Schema::named(Kind::String, "io.debezium.data.Json"),
                HstoreMode::Map => Schema::of(Kind::Map(
                    Box::new(Schema::of(Kind::String)),
                    Box::new(Schema::of(Kind::String).optional()),
                )),
            },
        }
    }
}

pub(crate) const CONNECT_DATE: &str = "org.apache.kafka.connect.data.Date";
pub(crate) const TIMESTAMP: &str = "io.debezium.time.Timestamp";
pub(crate) const MICRO_TIMESTAMP: &str = "io.debezium.time.MicroTimestamp";
pub(crate) const NANO_TIMESTAMP: &str = "io.debezium.time.NanoTimestamp";
pub(crate) const CONNECT_TIMESTAMP: &str = "org.apache.kafka.connect.data.Timestamp";

/// Ends the search should the catalog ever hold a circle.
const DEPTH_MAX: usize = 64;

fn time_form(mode: TimeMode, modifier: i32) -> TimeForm {
    match mode {
        TimeMode::Connect => TimeForm::Connect,
        TimeMode::Isostring => TimeForm::Iso,
        TimeMode::Microseconds => TimeForm::Micros,
        TimeMode::Nanoseconds => TimeForm::Nanos,
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds => match precision(modifier) {
            ..=3 => TimeForm::Millis,
            _ => TimeForm::Micros,
        },
    }
}

/// The digits behind the point of a time type.
fn precision(modifier: i32) -> i32 {
    if modifier < 0 { 6 } else { modifier }
}

fn decimal(scale: i32) -> Schema {
    Schema::named(Kind::Bytes, "org.apache.kafka.connect.data.Decimal").parameter("scale", scale)
}

fn field(name: &str, schema: Schema) -> Field {
    Field {
        name: name.to_owned(),
        schema,
    }
}

fn array_of(mut element: ColumnType, optional: bool) -> ColumnType {
    element.schema.optional = optional;
    ColumnType {
        schema: Schema::of(Kind::Array(Box::new(element.schema.clone()))),
        conversion: Conversion::Array(Box::new(element)),
    }
}

/// Arrays of these the connector has no rule for.
fn has_array(array_oid: u32) -> bool {
    !matches!(array_oid, 143 | 791 | 1003 | 1017 | 1187 | 1561 | 1563)
}

fn bits(name: &str, modifier: i32) -> ColumnType {
    let length = match (name, modifier) {
        ("bit", ..0) => 1,
        (_, ..0) => i32::MAX,
        _ => modifier,
    };
    if length <= 1 {
        return ColumnType {
            conversion: Conversion::Bit,
            schema: Schema::of(Kind::Boolean),
        };
    }
    ColumnType {
        conversion: Conversion::Bits,
        schema: Schema::named(Kind::Bytes, "io.debezium.data.Bits").parameter("length", length),
    }
}

fn point() -> ColumnType {
    let fields = vec![
        field("x", Schema::of(Kind::Float64)),
        field("y", Schema::of(Kind::Float64)),
        field("wkb", Schema::of(Kind::Bytes).optional()),
        field("srid", Schema::of(Kind::Int32).optional()),
    ];
    ColumnType {
        conversion: Conversion::Point,
        schema: Schema::named(Kind::Struct(fields), "io.debezium.data.geometry.Point")
            .doc("Geometry (POINT)"),
    }
}

fn geometry(name: &str, doc: &'static str) -> ColumnType {
    let fields = vec![
        field("wkb", Schema::of(Kind::Bytes)),
        field("srid", Schema::of(Kind::Int32).optional()),
    ];
    ColumnType {
        conversion: Conversion::Geometry,
        schema: Schema::named(Kind::Struct(fields), name).doc(doc),
    }
}

fn vector(conversion: Conversion, element: Kind, name: &str) -> ColumnType {
    ColumnType {
        conversion,
        schema: Schema::named(Kind::Array(Box::new(Schema::of(element))), name),
    }
}

fn sparse_vector() -> ColumnType {
    let entries = Kind::Map(
        Box::new(Schema::of(Kind::Int16)),
        Box::new(Schema::of(Kind::Float64)),
    );
    let fields = vec![
        field("dimensions", Schema::of(Kind::Int16)),
        field("vector", Schema::of(entries)),
    ];
    ColumnType {
        conversion: Conversion::SparseVector,
        schema: Schema::named(Kind::Struct(fields), "io.debezium.data.SparseDoubleVector")
            .doc("Sparse double vector"),
    }
}
