-- Postrider's tables on MySQL 8.0.17 and later.
-- Plain SQL that any migration tool can run; running it twice changes nothing.

-- Events of the services, written in their own transactions.
--
-- payload is LONGBLOB because what a service wrote is what Kafka gets: Avro, Protobuf and NUL pass as
-- well as JSON, and nothing is parsed or normalised. To read it in SQL: CONVERT(payload USING utf8mb4).
-- A service that prefers JSON or text may use a table of its own; the relay takes all of them.
-- headers is text with a check, not JSON: MySQL would re-order its
-- names and re-write its numbers, and the binary log would show a third form.
--
-- Every text compares by its bytes, trailing spaces included (utf8mb4_0900_bin): event ids and keys that
-- differ in case are different. All times are UTC whatever the session's time zone is.
CREATE TABLE IF NOT EXISTS outbox_events (
    id              BIGINT NOT NULL AUTO_INCREMENT,
    event_id        VARCHAR(64) NOT NULL,
    aggregate_type  VARCHAR(255) NOT NULL,
    aggregate_id    VARCHAR(255) NOT NULL,
    event_type      VARCHAR(255) NOT NULL,
    topic           VARCHAR(249),                -- NULL: the relay routes
    message_key     VARCHAR(512),                -- NULL: aggregate_id is the key
    payload         LONGBLOB,                    -- NULL: a tombstone
    headers         MEDIUMTEXT,                  -- a JSON object; strings go as they are
    status          VARCHAR(16) NOT NULL DEFAULT 'NEW',
    retry_count     INT NOT NULL DEFAULT 0,
    next_retry_at   DATETIME(6),                 -- NULL but for FAILED and DEAD rows
    last_error      TEXT,
    created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    sent_at         DATETIME(6),
    kafka_topic     VARCHAR(249),                -- the receipt: where Kafka acknowledged the record
    kafka_partition INT,
    kafka_offset    BIGINT,
    PRIMARY KEY (id),
    UNIQUE KEY outbox_events_event_id_key (event_id),
    -- New rows in the order of id without a sort, however many sent or dead ones there are. A query
    -- with a LIMIT must name it (FORCE INDEX): the optimiser would walk the history by the primary key.
    KEY outbox_events_status_idx (status, id),
    -- Rows to retry. Nearly every row is NULL here, and a mark does not touch the index.
    KEY outbox_events_retry_idx (next_retry_at, id),
    CONSTRAINT outbox_events_status_check CHECK (status IN ('NEW', 'SENDING', 'SENT', 'FAILED', 'DEAD')),
    CONSTRAINT outbox_events_headers_check CHECK (headers IS NULL OR JSON_VALID(headers))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin ROW_FORMAT = DYNAMIC;

-- Events that a consumer group has applied, written in the handler's transaction. Unique per group:
-- two groups on one table do not hide each other's work. Never partition it by processed_at: the same
-- event on two days would pass twice.
CREATE TABLE IF NOT EXISTS inbox_events (
    consumer_group  VARCHAR(255) NOT NULL,
    event_id        VARCHAR(255) NOT NULL,
    processed_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer_group, event_id),
    KEY inbox_events_processed_idx (processed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS postrider_schema (
    version         INT NOT NULL PRIMARY KEY,
    applied_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB;

INSERT IGNORE INTO postrider_schema (version) VALUES (1);
