-- Postrider's tables on SQLite 3.38 and later.
-- Plain SQL that any migration tool can run; running it twice changes nothing.
--
-- Times are text in UTC with milliseconds and a fixed width, 2026-07-15T10:30:00.000Z, so that they
-- compare as text and read well. strftime('%Y-%m-%dT%H:%M:%fZ', 'now') makes one.

-- Events of the services, written in their own transactions.
--
-- AUTOINCREMENT, so that the id of a deleted row is never handed out again.
-- payload has BLOB affinity, which keeps every value as it was written, text or bytes.
CREATE TABLE IF NOT EXISTS outbox_events (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id        TEXT NOT NULL CHECK (length(event_id) <= 64),
    aggregate_type  TEXT NOT NULL CHECK (length(aggregate_type) <= 255),
    aggregate_id    TEXT NOT NULL CHECK (length(aggregate_id) <= 255),
    event_type      TEXT NOT NULL CHECK (length(event_type) <= 255),
    topic           TEXT CHECK (length(topic) <= 249),         -- NULL: the relay routes
    message_key     TEXT CHECK (length(message_key) <= 512),   -- NULL: aggregate_id is the key
    payload         BLOB,                                      -- NULL: a tombstone
    headers         TEXT CHECK (headers IS NULL OR json_valid(headers)),
    status          TEXT NOT NULL DEFAULT 'NEW'
                    CHECK (status IN ('NEW', 'SENDING', 'SENT', 'FAILED', 'DEAD')),
    retry_count     INTEGER NOT NULL DEFAULT 0,
    next_retry_at   TEXT,                                      -- NULL but for FAILED and DEAD rows
    last_error      TEXT,
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    updated_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    sent_at         TEXT,
    kafka_topic     TEXT,                                      -- the receipt
    kafka_partition INTEGER,
    kafka_offset    INTEGER,
    CONSTRAINT outbox_events_event_id_key UNIQUE (event_id)
);

-- New rows in the order of id; sent rows leave it.
CREATE INDEX IF NOT EXISTS outbox_events_new_idx ON outbox_events (id) WHERE status = 'NEW';

CREATE INDEX IF NOT EXISTS outbox_events_retry_idx
    ON outbox_events (next_retry_at, id) WHERE next_retry_at IS NOT NULL;

-- Events that a consumer group has applied, written in the handler's transaction. Unique per group:
-- two groups on one table do not hide each other's work.
CREATE TABLE IF NOT EXISTS inbox_events (
    consumer_group  TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    processed_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (consumer_group, event_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS inbox_events_processed_idx ON inbox_events (processed_at);

CREATE TABLE IF NOT EXISTS postrider_schema (
    version         INTEGER PRIMARY KEY,
    applied_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

INSERT OR IGNORE INTO postrider_schema (version) VALUES (1);
