-- Postrider's tables on PostgreSQL 15 and later.
-- Plain SQL that any migration tool can run; running it twice changes nothing.

-- Events of the services, written in their own transactions.
--
-- payload is BYTEA because what a service wrote is what Kafka gets: Avro, Protobuf and NUL pass as
-- well as JSON, nothing is parsed on the way in and nothing is normalised. To read it in psql:
-- convert_from(payload, 'UTF8'). To write it in SQL: convert_to('{"a": 1}', 'UTF8'). A service that
-- prefers json, jsonb or text may use a table of its own; the relay takes all of them.
-- headers is JSON, not JSONB: the text is kept, order and U+0000 included.
--
-- Marking an event as sent must be a heap-only (HOT) update, for that is three times faster. So there
-- is no index over status, updated_at, sent_at or the receipt, nor one whose WHERE mentions them, and
-- more than half of each page is left free for the second version of its rows, which the receipt makes
-- longer. The relay finds new events by a cursor over id and looks after the ids that commit late.
--
-- Every business transaction pays for this table's INSERT, so what it costs was measured: a CHECK over
-- status takes 11 of 66 microseconds, VARCHAR(n) instead of TEXT two. There is neither. Only the relay
-- writes status: NEW, SENDING, SENT, FAILED, DEAD.
--
-- event_id compares by bytes (COLLATE "C"): faster, and safe from a change of the system's locale.
CREATE TABLE IF NOT EXISTS outbox_events (
    id              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id        TEXT COLLATE "C" NOT NULL,
    aggregate_type  TEXT NOT NULL,
    aggregate_id    TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    topic           TEXT,                        -- NULL: the relay routes
    message_key     TEXT,                        -- NULL: aggregate_id is the key
    payload         BYTEA,                       -- NULL: a tombstone
    headers         JSON,                        -- an object; strings go as they are
    status          TEXT NOT NULL DEFAULT 'NEW',
    retry_count     INTEGER NOT NULL DEFAULT 0,
    next_retry_at   TIMESTAMPTZ,                 -- NULL but for FAILED rows, and 'infinity' for DEAD ones
    last_error      TEXT,
    created_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    updated_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    sent_at         TIMESTAMPTZ,
    kafka_topic     TEXT,                        -- the receipt: where Kafka acknowledged the record
    kafka_partition INTEGER,
    kafka_offset    BIGINT,
    CONSTRAINT outbox_events_event_id_key UNIQUE (event_id)
) WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0,
    -- Giving pages back takes an exclusive lock, which would stall every writer for a moment.
    vacuum_truncate = false
);

-- Small: it holds the rows that failed, and sent rows never enter it.
CREATE INDEX IF NOT EXISTS outbox_events_retry_idx
    ON outbox_events (next_retry_at, id) WHERE next_retry_at IS NOT NULL;

-- Where a relay's scan of outbox_events begins, so that a restart does not read the history: every
-- event below low_id is settled.
CREATE TABLE IF NOT EXISTS outbox_cursor (
    name            TEXT COLLATE "C" PRIMARY KEY,
    low_id          BIGINT NOT NULL,
    updated_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10);

-- Events that a consumer group has applied, written in the handler's transaction. Unique per group:
-- two groups on one table do not hide each other's work. Never partition it by processed_at: the same
-- event on two days would pass twice.
CREATE TABLE IF NOT EXISTS inbox_events (
    consumer_group  TEXT COLLATE "C" NOT NULL,
    event_id        TEXT COLLATE "C" NOT NULL,
    processed_at    TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer_group, event_id)
);

-- For retention by time; rows come in the order of processed_at, so a few bytes a page range do.
CREATE INDEX IF NOT EXISTS inbox_events_processed_idx ON inbox_events USING brin (processed_at);

CREATE TABLE IF NOT EXISTS postrider_schema (
    version         INTEGER PRIMARY KEY,
    applied_at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO postrider_schema (version) VALUES (1) ON CONFLICT DO NOTHING;
