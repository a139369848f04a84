package schema

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/outbox"
)

// State is what a database has of the schema.
type State struct {
	// Installed is the version noted in the database, 0 when there is none.
	Installed int `json:"installed"`
	// Latest is the newest version that this program knows.
	Latest int `json:"latest"`
	// Missing lists the tables and columns ("outbox_events.kafka_offset") that the newest version has and
	// the database has not, in the order of the SQL.
	Missing []string `json:"missing"`
}

// Complete reports whether nothing is left to apply. A database that a newer program changed is
// complete as long as nothing is missing.
func (s State) Complete() bool { return s.Installed >= s.Latest && len(s.Missing) == 0 }

// Status compares the database with the newest version. It changes nothing.
func Status(ctx context.Context, db *sql.DB, d outbox.Dialect) (State, error) {
	if _, err := stepsOf(d); err != nil {
		return State{}, err
	}
	c := catalogue{d, db}
	state := State{Latest: Latest(d), Missing: []string{}}
	for _, t := range c.tables() {
		have, err := c.columns(ctx, t.name)
		if err != nil {
			return State{}, fmt.Errorf("read schema status: %w", err)
		}
		if len(have) == 0 {
			state.Missing = append(state.Missing, t.name)
			continue
		}
		for _, column := range t.missing(have) {
			state.Missing = append(state.Missing, t.name+"."+column)
		}
	}
	version, err := c.version(ctx)
	if err != nil {
		return State{}, fmt.Errorf("read schema status: %w", c.explain(ctx, err))
	}
	state.Installed = version
	return state, nil
}
