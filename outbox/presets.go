package outbox

// ArticlePostgres returns the options for the outbox_events table that many PostgreSQL services
// copied from one another: payload and headers JSONB, no topic and no key column, states from NEW.
// The database fills status, next_retry_at and created_at by the table's defaults.
func ArticlePostgres() Options {
	return Options{
		Columns:     Columns{Topic: Omit, MessageKey: Omit},
		Lengths:     Lengths{EventID: 64, AggregateType: 64, AggregateID: 64, EventType: 128},
		Required:    Required{Payload: true},
		PayloadType: JSONB,
		HeadersType: JSONB,
	}
}

// ArticleMySQL returns the options for the outbox_event table of many MySQL services: payload JSON,
// topic required, no headers column, states from PENDING. The table has no defaults for created_at
// and updated_at: the database's clock fills them, in the time zone of its session as the table's
// other users do it.
func ArticleMySQL() Options {
	return Options{
		Table:   "outbox_event",
		Columns: Columns{Headers: Omit},
		Lengths: Lengths{
			EventID: 64, AggregateType: 64, AggregateID: 64, EventType: 128,
			Topic: 128, MessageKey: 128,
		},
		Required:    Required{Topic: true, Payload: true},
		PayloadType: JSON,
		Set:         map[string]string{"status": "'PENDING'", "created_at": "NOW()", "updated_at": "NOW()"},
	}
}

// Debezium returns the options for the table that Debezium's outbox event router reads by default:
// id uuid, aggregatetype, aggregateid, type, payload jsonb.
func Debezium() Options {
	return Options{
		Table: "outbox",
		Columns: Columns{
			EventID: "id", AggregateType: "aggregatetype", AggregateID: "aggregateid", EventType: "type",
			Topic: Omit, MessageKey: Omit, Headers: Omit,
		},
		PayloadType: JSONB,
		EventIDType: UUID,
	}
}
