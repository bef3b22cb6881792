//! Every code with its title, what it means and what to do; `docs/errors.md` is written from this table.
//!
//! A number once given is never given again, and never changes its meaning. Gaps between groups are room to grow.

macro_rules! codes {
    ($($name:ident = $number:literal, $title:literal, $meaning:literal, $action:literal;)+) => {
        /// What went wrong, as a number that stays the same over releases. Displays as `PH0301`.
        ///
        /// The hundreds are the group: 01 configuration, 02 connection and authentication, 03 preconditions, 04 stream,
        /// 05 routing, 06 Kafka, 07 the process itself, 08 coming from Debezium.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $title] $name,)+
        }

        impl Code {
            /// Every code, by number.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The number without its letters: 301 for `PH0301`.
            #[must_use]
            pub fn number(self) -> u16 {
                match self { $(Self::$name => $number,)+ }
            }

            /// A few words that name the problem.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// What it means when it appears.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }

            /// What the reader does about it.
            #[must_use]
            pub fn action(self) -> &'static str {
                match self { $(Self::$name => $action,)+ }
            }
        }
    };
}

codes! {
    Unexpected = 1, "unexpected error",
        "Something happened that no other code describes; the process ends with status 1.",
        "Report it with the log lines before it.";

    ConfigFileUnreadable = 101, "configuration file cannot be read",
        "The file given with `-c` does not exist, may not be read, is not UTF-8 or is larger than 1 MiB.",
        "Correct the path or the rights of the file.";
    ConfigFormatUnknown = 102, "configuration format unknown",
        "Neither the file's extension nor `--format` names a format Posthaste reads.",
        "Name the file `….toml` or give `--format`; `docs/configuration.md` lists the formats.";
    ConfigSyntax = 104, "configuration file is not TOML",
        "The file breaks the rules of TOML at the line and column given.",
        "Correct that line; text values need quotes.";
    ConfigKeyUnknown = 105, "unknown configuration key",
        "A key, an environment variable `POSTHASTE__…` or a `--set` names no setting. Nothing is ignored silently.",
        "Take the suggested key, or one of the list in the message.";
    ConfigValueType = 106, "value of the wrong type",
        "A value is, for example, a number where a text is needed.",
        "Write the value in the form the message names.";
    ConfigValue = 107, "value not allowed",
        "The type is right, but the value lies outside its bounds or is none of the allowed words.",
        "Choose a value within the bounds the message names.";
    ConfigKeyMissing = 108, "required key missing",
        "A setting without a default was given neither in the file nor by environment nor by `--set`.",
        "Add the key.";
    ConfigConflict = 109, "keys contradict each other",
        "Two keys say the same thing in two ways, for example `source.url` and `source.host`.",
        "Keep one of the two.";
    ConfigOverride = 110, "override malformed",
        "A `--set` or an environment variable cannot be read as key and value, or two variables set the same key.",
        "Write `--set table.key=value` or `POSTHASTE__TABLE__KEY=value`.";
    ConfigPipelineLayout = 111, "pipeline written in two ways",
        "The file has both `[[pipeline]]` and pipeline tables at its top level.",
        "Move the top-level tables under `[[pipeline]]`, or remove `[[pipeline]]`.";
    ConfigPipelineCount = 112, "more than one pipeline",
        "The file has several `[[pipeline]]` entries, or none in the list; one process runs exactly one for now.",
        "Keep one entry per file and start one process for each.";
    ConfigPipelineName = 113, "pipeline name illegal",
        "The name appears in metrics, file names and Kafka client ids, so only letters, digits, `-` and `_` are allowed, at most 63.",
        "Choose a name of these characters.";
    ConfigSecretFile = 114, "secret file cannot be read",
        "A file named by `password_file` or `kafka.properties_files` is missing, may not be read, is empty, larger than 64 KiB or not UTF-8.",
        "Correct the path, the rights or the content of the file.";
    ConfigSlotName = 115, "replication slot name illegal",
        "PostgreSQL allows lower-case letters, digits and underscores in slot names, at most 63.",
        "Choose a name of these characters.";
    ConfigName = 116, "name illegal",
        "The name of a table, publication or column cannot exist in PostgreSQL or is not written as SQL writes it.",
        "Correct the name; quote names with special characters as in SQL.";
    ConfigKafkaPropertyRefused = 117, "Kafka property refused",
        "The property would break the delivery guarantee, belongs to another key, or takes another build.",
        "Remove it; the message says why and what to use instead.";
    ConfigKafkaProperty = 118, "Kafka property invalid",
        "librdkafka does not know the property or does not accept its value.",
        "See librdkafka's CONFIGURATION.md for names and values.";
    ConfigConnection = 119, "connection settings invalid",
        "The connection URL or one of the connection keys cannot be understood.",
        "Correct it; `docs/configuration.md` lists the forms.";
    ConfigLogLevel = 120, "log level invalid",
        "`log.level` is neither a level nor a list of `target=level` directives.",
        "Use for example `info` or `info,replication=debug`.";
    ConfigRouter = 121, "router settings invalid",
        "The topic template, a header or the timestamp source cannot be used.",
        "Correct the key the message names.";
    ConfigConnectRefused = 122, "connector configuration refused",
        "A configuration of a Debezium connector has keys that cannot be followed without changing what consumers get; the message names each.",
        "Change these keys as the message says; `posthaste debezium check FILE` tells of every key.";
    ConfigConnectFile = 124, "connector configuration cannot be understood",
        "The file breaks the rules of its format (JSON, properties, YAML) at the line given, or is no configuration of a Debezium PostgreSQL connector.",
        "Correct that line, or give the right file; `--format` says how to read it where its name and content mislead.";

    ServerUnreachable = 201, "PostgreSQL unreachable",
        "No server accepted the connection. Retried with backoff, unless `--fail-fast` was given.",
        "Check address, port and network; nothing else if the server is only restarting.";
    ServerAuthentication = 202, "PostgreSQL refused the password",
        "Authentication failed: wrong password, unknown role, or none given.",
        "Correct `source.user` and the password.";
    ServerDatabaseUnknown = 203, "database does not exist",
        "The server knows no database of this name.",
        "Correct the database name.";
    ServerAccessRefused = 204, "PostgreSQL refuses this client",
        "No line of pg_hba.conf admits this host, user and database, or the role may not log in or connect.",
        "Add the line, or grant LOGIN or CONNECT.";
    ServerTls = 205, "TLS with PostgreSQL failed",
        "The handshake or the check of the server's certificate failed; the message says which check.",
        "Correct `sslrootcert`, the host name or the server's certificate.";
    ServerTlsUnavailable = 206, "PostgreSQL offers no TLS",
        "`sslmode` asks for TLS and the server answered that it has none. Posthaste never falls back to plain text then.",
        "Turn TLS on at the server, or choose another `sslmode`.";
    ServerStarting = 207, "PostgreSQL is starting or stopping",
        "The server answers but takes no connections yet. Retried with backoff.",
        "Wait.";
    ServerConnectionsExhausted = 208, "no connection left",
        "`max_connections` or the role's or database's limit is reached. Retried with backoff.",
        "Free connections or raise the limit.";
    ServerPooler = 209, "connection pooler in between",
        "The other side refuses the `replication` start-up parameter or other session settings, as poolers do.",
        "Give the address of the PostgreSQL server itself.";
    ServerConnectionLost = 210, "connection to PostgreSQL lost",
        "The stream ended without having been asked to. Posthaste connects again by itself.",
        "Nothing, unless it repeats.";
    ServerAuthenticationMethod = 211, "authentication method not supported",
        "The server asks for a method other than SCRAM-SHA-256, md5, password over TLS, trust or a certificate.",
        "Choose one of these in pg_hba.conf.";
    ServerCleartextPassword = 212, "password in clear text refused",
        "The server asks for the password in clear text over a connection without TLS.",
        "Use `scram-sha-256` in pg_hba.conf, or `sslmode = \"verify-full\"`.";
    ServerProtocol = 213, "PostgreSQL protocol violated",
        "The other side answered something the protocol does not allow here. It may not be a PostgreSQL server.",
        "Check the address; report it if it is PostgreSQL.";
    ServerTlsFiles = 214, "certificate or key unusable",
        "A file named by `sslrootcert`, `sslcert` or `sslkey` is missing, unreadable, readable by others, not PEM, or does not fit the others.",
        "Correct path, rights or content.";
    ServerStalled = 215, "PostgreSQL silent",
        "The connection is open but nothing arrives within the stall limit. Posthaste drops it and connects again.",
        "Check the network between the two.";
    ServerTokenCommand = 216, "no password from the command",
        "`source.token_command` cannot be run, fails, takes longer than 20 s, or prints nothing or too much. Retried with backoff, unless `--fail-fast` was given.",
        "Run the command by hand as the user of the process; its output and its standard error are never shown.";

    WalLevel = 301, "wal_level is not logical",
        "Logical decoding needs `wal_level = logical`.",
        "`ALTER SYSTEM SET wal_level = logical`, then restart the server.";
    ReplicationRight = 302, "role may not replicate",
        "The role has no REPLICATION attribute (tried, not read from flags).",
        "`ALTER ROLE … REPLICATION`; on hosted services grant the service's replication role.";
    PublicationMissing = 303, "publication does not exist",
        "The database has no publication of this name.",
        "Run the `CREATE PUBLICATION` of the message, or set `source.create = true`.";
    PublicationInserts = 304, "publication does not publish inserts",
        "Its `publish` option leaves out inserts.",
        "`ALTER PUBLICATION … SET (publish = 'insert')`.";
    PublicationTable = 305, "table not in the publication",
        "The publication exists but does not contain the outbox table.",
        "`ALTER PUBLICATION … ADD TABLE …`.";
    PublicationColumns = 306, "column list lacks columns",
        "The publication's column list leaves out columns the router needs.",
        "`ALTER PUBLICATION … SET TABLE …` with these columns or without a list.";
    PublicationRowFilter = 307, "publication filters rows",
        "A row filter would drop events before Posthaste sees them.",
        "`ALTER PUBLICATION … SET TABLE …` without WHERE.";
    PublicationGeneratedColumn = 308, "generated column not published",
        "A mapped column is generated, and this server or publication does not send generated columns.",
        "Map an ordinary column; from PostgreSQL 18 also `publish_generated_columns = stored`.";
    SlotMissing = 309, "replication slot does not exist",
        "The server has no slot of this name. Events committed before it is made are not in it.",
        "Run the statement of the message, or set `source.create = true`.";
    SlotPlugin = 310, "replication slot has another plugin",
        "The slot was made with an output plugin other than pgoutput.",
        "Name another slot, or drop this one and make it with pgoutput.";
    SlotDatabase = 311, "replication slot belongs to another database",
        "A logical slot can only be read in the database it was made in.",
        "Connect to that database, or name another slot.";
    SlotPhysical = 312, "replication slot is physical",
        "The name belongs to a physical slot.",
        "Name another slot.";
    SlotInvalidated = 313, "replication slot is invalidated",
        "The server gave up the slot (WAL limit, rows removed, idle time). Events after its last position are not available from it.",
        "Drop the slot and make a new one; events in between have to be sent again from the table.";
    SlotActive = 314, "replication slot in use",
        "Another process reads the slot. Retried with backoff, unless `--fail-fast` was given.",
        "Stop the other process, if it is not meant to be the active one.";
    TableMissing = 315, "outbox table does not exist",
        "The database has no table of this name in this schema.",
        "Create it (`sql/` has the statements), or correct `source.tables`.";
    TableUnlogged = 316, "outbox table is unlogged",
        "Rows of UNLOGGED and TEMPORARY tables are not in the WAL.",
        "`ALTER TABLE … SET LOGGED`.";
    ColumnMissing = 317, "outbox table lacks a column",
        "A column the router is told to use does not exist.",
        "Add the column, or map another one under `[router]`.";
    Standby = 318, "server is a standby",
        "The server is in recovery; the outbox has to be read from the primary.",
        "Give the address of the primary, or a list of hosts.";
    SlotsExhausted = 319, "no replication slot left",
        "All `max_replication_slots` are used.",
        "Drop slots that nobody reads, or raise the setting and restart.";
    SendersExhausted = 320, "no replication connection left",
        "All `max_wal_senders` are used, which is retried with backoff; or the setting is 0, which is not.",
        "Stop replicas that nobody needs, or raise the setting and restart.";
    CreateRefused = 321, "publication or slot cannot be created",
        "`source.create` is on, but the role lacks the right, or the statement failed.",
        "Let the owner of the table run the statement of the message.";
    SlotTemporary = 322, "replication slot is temporary",
        "A temporary slot is gone with its session and loses events.",
        "Name another slot, or make a permanent one.";
    TableKind = 323, "outbox is not an ordinary table",
        "The name belongs to a view, a foreign table or another object without rows in the WAL.",
        "Name an ordinary or partitioned table.";
    ServerVersion = 324, "PostgreSQL version not supported",
        "The server is older than the oldest supported major version.",
        "Use a supported version.";
    SlotTwoPhase = 325, "replication slot decodes prepared transactions",
        "The slot was made with two_phase, whose messages this version does not read.",
        "Name another slot, or make one without two_phase.";

    PublicationPartitions = 326, "publication sends partitions apart",
        "The outbox is partitioned and the publication has `publish_via_partition_root = false`, so rows arrive under the names of the partitions.",
        "`ALTER PUBLICATION … SET (publish_via_partition_root = true)`.";
    PublicationAge = 327, "publication younger than the slot",
        "The slot still has to read WAL from before the publication existed. The server reads old WAL with the catalogs of its time and finds no publication there.",
        "Follow the message: create the publication first, then the slot, and look in the table for rows committed before.";
    PublicationOperations = 328, "publication sends more than inserts",
        "A warning. Updates, deletes and truncates are decoded and sent, and make no events.",
        "`ALTER PUBLICATION … SET (publish = 'insert')` spares the work.";
    TableInherited = 329, "another table inherits from the outbox",
        "A warning. Rows stored in the inheriting table are not events.",
        "If they should be, name that table in `source.tables` too.";
    SlotAtRisk = 330, "replication slot about to be given up",
        "A warning. The next checkpoint may remove WAL that the slot needs.",
        "Raise `max_slot_wal_keep_size` until the backlog is read.";
    SlotLost = 331, "replication slot gone",
        "The slot was read before and no longer exists. A new one would hide the gap, so none is made, even with `source.create`.",
        "Look in the table for events committed after the position in the message; then remove the state file and make the slot.";
    CatalogRefused = 332, "system catalogs cannot be read",
        "A query that every role may make by default was refused.",
        "See the server's message.";
    ParkingMissing = 333, "tables for parked events missing",
        "Events are to be parked, and the schema `poison.schema` has no table `parked` or `skipped`, or they are of another version.",
        "Run `sql/004_poison.sql` in the source database.";
    ParkingRights = 334, "no right on the tables for parked events",
        "The role may not read and write the tables for parked events.",
        "Run the GRANT statements of `sql/004_poison.sql` for this role.";
    ParkedWaiting = 335, "parked events wait",
        "Events of this slot are parked, and `poison.on_poison` is not `park`: later events of their aggregates would overtake them.",
        "Set `poison.on_poison = \"park\"` until `posthaste parked list` is empty, or discard them.";
    SlotNotFailover = 338, "replication slot does not survive a failover",
        "A warning. `source.failover` asks for a failover slot, and the slot that is there is none.",
        "Run the statement of the message, or make the slot anew.";
    SlotRecreated = 339, "replication slot made anew",
        "A warning. The slot was lost, and `--recreate-lost-slot` was given, so a new one was made: what was committed in between and not delivered is missing in Kafka.",
        "`posthaste reconcile` finds what is still in the table; `--publish` sends it.";
    OutboxUnreadable = 340, "outbox rows cannot be read",
        "A command that compares or copies rows of the outbox may not read them; streaming itself needs no such right.",
        "Grant SELECT on the table to the role of the connection.";
    SlotBehind = 341, "replication slot has not passed the rows",
        "The stream is still going to deliver some of the rows in question, so that they cannot be told from lost ones.",
        "Wait until the pipeline has caught up, or start it; drop the slot if it is not to be read any more.";

    StreamDecode = 401, "stream cannot be decoded",
        "A message of the stream breaks the pgoutput format. Nothing after it is confirmed.",
        "Report it with server version and position.";
    FrameTooLarge = 402, "row too large",
        "A row of the stream exceeds `source.frame_bytes_max`. It was read past without being kept in memory.",
        "Raise `source.frame_bytes_max` (and Kafka's limits), or remove the cause of such rows.";
    StreamEnded = 403, "server ended the stream",
        "The server finished the copy by itself. Posthaste connects again.",
        "Nothing, unless it repeats.";
    StreamRefused = 404, "stream refused",
        "START_REPLICATION, or reading it, failed with an error that does not heal by itself.",
        "See the server's message.";
    SystemChanged = 405, "another server answers",
        "The system identifier differs from the one seen before: this is not the same database cluster.",
        "Check the address; after a restore, remove the state file knowingly.";
    TimelineChanged = 406, "server on another timeline",
        "A warning. A standby was promoted or a backup restored since the position was remembered; the position lies in the history of the present timeline, and is used.",
        "Nothing. What the old server committed behind the position and did not pass on is lost to both.";

    HistoryDiverged = 420, "position outside the server's history",
        "A standby was promoted, or a backup restored, without everything up to the position: events in the range given were published and no longer exist in the database.",
        "Decide about those events: `docs/operations.md`, \"A position that does not fit\". Then start once with `--accept-slot-position`.";

    RowColumnMissing = 501, "row lacks a mapped column",
        "A row of the stream was written when the table did not have a column the router needs.",
        "Correct the mapping, or the table; the message names position and event.";
    RowAggregateTypeNull = 502, "aggregate type is null",
        "The column that names the topic is NULL in this row.",
        "Make the column NOT NULL; decide about this row.";
    RowTopicIllegal = 503, "topic name illegal",
        "The topic made from this row contains characters Kafka does not allow, or is empty or too long.",
        "Correct what writes the aggregate type, or `router.topic`.";
    RowValue = 504, "value cannot be used",
        "The text of a column is not what its role needs, for example a timestamp that cannot be read.",
        "Correct the mapping, or what writes the column.";
    RowValueAbsent = 505, "value not in the stream",
        "The server did not send the value of a mapped column.",
        "Check column list and type of the column.";
    RowUpdated = 506, "outbox row updated",
        "A row of an outbox was updated, and `table.op.invalid.behavior=fatal` says that this stops the connector.",
        "Let the publication send inserts only, or write `warn` for that option; the update itself never makes an event.";
    ParkingFull = 507, "no more events can be parked",
        "As many events wait as `poison.parked_rows_max` or `poison.parked_bytes_max` allow; the position stays before the next one.",
        "Retry or discard what is parked (`posthaste parked list`), or raise the limit.";
    ParkedAggregateUnknown = 508, "aggregate of a too large row unknown",
        "The row is larger than `source.frame_bytes_max`, and a column of its aggregate is not kept: it is larger than 4 KiB, or 64 KiB of columns before it are kept already. So it cannot be parked in its place.",
        "Raise `source.frame_bytes_max`, or pass the event over with `posthaste skip`.";
    ParkedRowPartial = 509, "parked row not whole",
        "Not all columns of a parked row are known, since it was larger than `source.frame_bytes_max`; it cannot be published as it is.",
        "Give the missing columns with `posthaste parked edit`, or discard it.";
    ParkedBehind = 510, "parked behind an event of its aggregate",
        "The event itself is well; an earlier one of its aggregate is parked, and it must not overtake it.",
        "Nothing: it is published once nothing before it is held.";
    ParkedUnknown = 511, "no such parked event",
        "A command names a parked event, an aggregate or a column that is not there, or not in a state for it.",
        "Look at `posthaste parked list`.";
    ValueNulled = 512, "value sent as NULL",
        "A warning. A value that Connect's types have no place for, such as the numeric `NaN`, was sent as NULL or as the column's default, as Debezium does (`event.converting.failure.handling.mode`). Told of every 10 s at the most; `posthaste_rows_nulled_total` counts the rows.",
        "Correct what writes the column, or the mode of its type (`decimal.handling.mode`); with `fail` the stream stops there, unless it is an array of arrays.";

    KafkaUnreachable = 601, "Kafka unreachable",
        "No broker answers. Retried without end; nothing is confirmed meanwhile.",
        "Check `kafka.brokers`, network and listeners.";
    KafkaRecordTooLarge = 602, "record too large for Kafka",
        "The broker or the client refused the record for its size.",
        "Raise `message.max.bytes` at the topic and in `kafka.properties`, or remove the cause of such events.";
    KafkaAuthorization = 603, "Kafka authorization failed",
        "The principal may not write to the topic.",
        "Grant WRITE (and DESCRIBE) on the topic.";
    KafkaAuthentication = 604, "Kafka authentication failed",
        "The broker refused the SASL credentials or the mechanism.",
        "Correct the `sasl.…` properties.";
    KafkaTls = 605, "TLS with Kafka failed",
        "The handshake or the check of the broker's certificate failed.",
        "Correct the `ssl.…` properties.";
    KafkaTopicUnknown = 606, "topic does not exist",
        "The cluster does not have the topic and does not create it by itself, or refuses to create it as `topic.creation.*` says.",
        "Create the topic, or correct those keys of the connector's file.";
    KafkaRecordRefused = 607, "Kafka refused the record",
        "The broker rejected the record for a reason that will not go away, such as a topic policy.",
        "See the broker's error; correct the topic or the record.";
    KafkaClientFatal = 608, "Kafka client failed for good",
        "The idempotent producer reached a state it cannot leave; unconfirmed events are sent again after a restart.",
        "Restart; report it if it repeats.";
    KafkaClient = 609, "Kafka client cannot be made",
        "The client library refused its configuration as a whole.",
        "See the message of the library.";
    KafkaIdempotentWrite = 610, "idempotent writes not authorized",
        "Brokers before 2.8 ask for the IDEMPOTENT_WRITE right on the cluster.",
        "Grant it to the principal.";
    KafkaFenced = 620, "another producer took over",
        "A producer with the same transactional id was started later, so the brokers take nothing more from this one. Posthaste gives up the slot and stands by.",
        "Nothing after a takeover. If it repeats: two pipelines share a `kafka.transactional_id`.";
    PositionMissing = 621, "committed position missing",
        "Delivery is exactly once, the slot was read before, and the position topic has no position for it: what was published behind the slot's position is not known.",
        "See `docs/operations.md`, \"A position that does not fit\". At the first start with exactly-once on a slot in use, start once with `--accept-slot-position`.";
    PositionForeign = 622, "committed position of something else",
        "The record in the position topic was written for another database or slot, by a newer version, or is no position.",
        "Give each pipeline its own name or `kafka.position_topic`.";
    PositionHalfDone = 623, "stream does not fit the committed position",
        "A transaction was published in part, and the rest of it would be read through another publication or other options, so its rows cannot be counted.",
        "Take the change back until the transaction is done; or see `docs/operations.md`, \"A position that does not fit\".";
    PositionTopic = 624, "position topic unfit",
        "The topic for positions has more than one partition, is not compacted, or has fewer replicas than `kafka.position_replicas`.",
        "Correct the topic, or name another one.";

    StateUnreadable = 701, "state file cannot be read",
        "A warning. The file in `state.directory` is damaged or may not be read. It is not used.",
        "Correct its rights, or remove it: that costs at most repeated events, never lost ones.";
    StateForeign = 702, "state file belongs elsewhere",
        "A warning. The file was written for another server, database or slot. It is not used.",
        "Give each pipeline its own directory or name, or remove the file.";
    StateAhead = 703, "state file ahead of the server",
        "The remembered position lies beyond what the server has written: it was restored from a backup or is another server.",
        "Find out what happened to the server; then remove the file.";
    StateUnwritable = 704, "state file cannot be written",
        "The position cannot be saved. At the start this ends the process; later it is a warning, delivery goes on, and a restart may repeat events.",
        "Correct rights and free space of `state.directory`.";
    HttpListen = 705, "HTTP address cannot be opened",
        "`http.listen` is in use or not allowed.",
        "Choose another address, or `off`.";
    DrainLimitReached = 706, "drain limit reached",
        "The process was told to stop, and Kafka did not acknowledge everything within `kafka.drain_timeout`, or the server could not be told of it and there is no state file. What is not confirmed is sent again at the next start.",
        "Nothing is lost. Raise the limit, or look at why Kafka is slow; set `state.directory`, which keeps the position where the server cannot be reached.";
    SecondSignal = 707, "stopped at once by a second signal",
        "The process was told to stop twice and did not drain. What was not acknowledged is sent again at the next start.",
        "Nothing is lost.";

    OffsetUnreadable = 801, "stored offset cannot be read",
        "What was given with `--offsets` has none of the forms in which Connect or Debezium Server keep offsets, or cannot be opened.",
        "Give Connect's answer to `GET /connectors/NAME/offsets`, the offsets topic, or the file of a standalone worker.";
    OffsetMissing = 802, "stored offset missing",
        "The offsets that were found are other connectors', or this connector's was deleted.",
        "Check the connector's name and `topic.prefix`. Without an offset it is not known what has been published.";
    TopicUnreadable = 803, "topic cannot be read",
        "The topic does not exist, the brokers do not answer, or this client may not read it.",
        "Check the name, the brokers and the rights.";
    TakeoverRefused = 804, "takeover refused",
        "Slot and stored offset do not fit together, so that events may be missing or it cannot be told what has been published.",
        "Follow the message. Nothing was changed.";
    TakeoverConnectorRuns = 805, "connector still reads the slot",
        "Another process, most likely Connect, reads the slot, so that its offset is not its last one.",
        "Stop the connector (`PUT /connectors/NAME/stop`) and try again.";
    TakeoverState = 806, "takeover needs a state directory",
        "What was decided has to be kept for `run`, and there is no folder for it.",
        "Give `--set state.directory=FOLDER` to `takeover` and to `run`.";
    TakeoverFile = 807, "take-over file unusable",
        "The state directory has a decision of `posthaste debezium takeover` that is damaged, or about another server, slot or publication.",
        "Run `takeover` again; or remove the file: then more may be sent again.";
    DiffTopics = 808, "topics cannot be compared",
        "A topic to compare does not exist, or no topic has the prefix.",
        "Correct the names given to `posthaste debezium diff`.";
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// The table of `docs/errors.md`, between its marks.
    fn table() -> String {
        let groups = [
            "The unexpected",
            "Configuration",
            "Connection and authentication",
            "Preconditions",
            "Stream",
            "Routing",
            "Kafka",
            "The process",
            "Coming from Debezium",
        ];
        let mut text = String::new();
        let mut group = usize::MAX;
        for code in Code::ALL {
            let hundred = usize::from(code.number() / 100);
            if hundred != group {
                group = hundred;
                let title = groups
                    .get(hundred)
                    .copied()
                    .expect("every group has a title");
                write!(text, "\n## {title}\n\n| code | problem | what it means | what to do | exit |\n|---|---|---|---|---|\n").expect("to a string");
            }
            let (title, meaning, action) = (code.title(), code.meaning(), code.action());
            let exit = match code.is_warning() {
                true => "–".to_owned(),
                false => code.exit_code().to_string(),
            };
            writeln!(text, "| {code} | {title} | {meaning} | {action} | {exit} |")
                .expect("to a string");
        }
        text
    }

    #[test]
    fn the_document_lists_every_code() {
        crate::config_reference::tests::check_document("errors.md", "codes", &table());
    }

    #[test]
    fn every_code_says_what_it_means_and_what_to_do() {
        for code in Code::ALL {
            assert!(
                !code.title().ends_with('.'),
                "{code}: a title is no sentence"
            );
            assert!(code.meaning().ends_with('.'), "{code}");
            assert!(code.action().ends_with('.'), "{code}");
            assert!(
                !format!("{}{}{}", code.title(), code.meaning(), code.action()).contains('|'),
                "{code}: would break the table"
            );
        }
    }
}
