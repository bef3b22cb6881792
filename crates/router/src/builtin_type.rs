//! Stage 5 of 9, built-in types: names and arrays of the oids in `pg_type.dat`, which never change.

/// The name of a built-in type that is no array.
pub(crate) fn builtin_name(oid: u32) -> Option<&'static str> {
    BUILTIN
        .binary_search_by_key(&oid, |(known, ..)| *known)
        .ok()
        .and_then(|at| BUILTIN.get(at))
        .map(|(_, name, _)| *name)
}

/// What a built-in array type is an array of.
pub(crate) fn array_element(oid: u32) -> Option<u32> {
    BUILTIN
        .iter()
        .find(|(_, _, array)| *array == oid)
        .map(|(element, ..)| *element)
}

/// Oid, name, and oid of the array; by oid.
const BUILTIN: [(u32, &str, u32); 47] = [
    (16, "bool", 1000),
    (17, "bytea", 1001),
    (18, "char", 1002),
    (19, "name", 1003),
    (20, "int8", 1016),
    (21, "int2", 1005),
    (23, "int4", 1007),
    (25, "text", 1009),
    (26, "oid", 1028),
    (114, "json", 199),
    (142, "xml", 143),
    (600, "point", 1017),
    (601, "lseg", 1018),
    (602, "path", 1019),
    (603, "box", 1020),
    (604, "polygon", 1027),
    (628, "line", 629),
    (650, "cidr", 651),
    (700, "float4", 1021),
    (701, "float8", 1022),
    (718, "circle", 719),
    (774, "macaddr8", 775),
    (790, "money", 791),
    (829, "macaddr", 1040),
    (869, "inet", 1041),
    (1042, "bpchar", 1014),
    (1043, "varchar", 1015),
    (1082, "date", 1182),
    (1083, "time", 1183),
    (1114, "timestamp", 1115),
    (1184, "timestamptz", 1185),
    (1186, "interval", 1187),
    (1266, "timetz", 1270),
    (1560, "bit", 1561),
    (1562, "varbit", 1563),
    (1700, "numeric", 1231),
    (2950, "uuid", 2951),
    (3220, "pg_lsn", 3221),
    (3614, "tsvector", 3643),
    (3615, "tsquery", 3645),
    (3802, "jsonb", 3807),
    (3904, "int4range", 3905),
    (3906, "numrange", 3907),
    (3908, "tsrange", 3909),
    (3910, "tstzrange", 3911),
    (3912, "daterange", 3913),
    (3926, "int8range", 3927),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_oid() {
        assert!(BUILTIN.is_sorted_by_key(|(oid, ..)| *oid));
        assert_eq!(builtin_name(25), Some("text"));
        assert_eq!(builtin_name(3802), Some("jsonb"));
        assert_eq!(builtin_name(1009), None);
        assert_eq!(array_element(1009), Some(25));
        assert_eq!(array_element(25), None);
    }
}
