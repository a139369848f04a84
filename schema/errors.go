package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// PermissionError says which right the connected user lacks and the statement that grants it.
type PermissionError struct {
	// User is the database's name for the user, empty on SQLite.
	User string
	// Right is the missing right, such as CREATE.
	Right string
	// On is what it is missing on, such as `schema "public"`.
	On string
	// Fix is the statement that an administrator runs, or what to change on SQLite.
	Fix string
	// Err is the driver's error, nil when the right was looked up beforehand.
	Err error
}

// Error names user, right, object and remedy.
func (e *PermissionError) Error() string {
	user := "the process"
	if e.User != "" {
		user = "user " + e.User
	}
	return fmt.Sprintf("%s lacks %s on %s: %s", user, e.Right, e.On, e.Fix)
}

// Unwrap returns the driver's error.
func (e *PermissionError) Unwrap() error { return e.Err }

// ConflictError says that a table of one of our names exists and is not ours.
type ConflictError struct {
	Table   string
	Missing []string // the columns it lacks
}

// Error names the table, what it lacks and the two ways out.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("table %s exists and is not Postrider's, it lacks %s: keep it and relay it by mapping "+
		"(outbox.preset, outbox.columns), or apply the schema in another schema or database",
		e.Table, strings.Join(e.Missing, ", "))
}

// IncompleteError says that a table of ours has lost columns, which Apply does not add again by itself:
// somebody took them away, and adding one may rewrite and lock a big table.
type IncompleteError struct {
	Table   string
	Missing []string // the columns it lacks
	Fix     []string // the statements that bring them back
}

// Error names the table, what it lacks and the statements that repair it.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("table %s lacks %s: run %s", e.Table, strings.Join(e.Missing, ", "), strings.Join(e.Fix, "; "))
}

// lacks builds the error with the statement that grants what Apply needs, the missing right among it.
func (c catalogue) lacks(right, grant, on, user string, err error) error {
	grantee := user
	if c.dialect == outbox.Postgres {
		grantee = c.dialect.QuoteIdent(user)
	}
	return &PermissionError{
		User: user, Right: right, On: on, Err: err,
		Fix: fmt.Sprintf("let an administrator run: GRANT %s ON %s TO %s", grant, on, grantee),
	}
}

// explain turns a refusal of the database into a *PermissionError where it can tell what is missing.
func (c catalogue) explain(ctx context.Context, err error) error {
	text := err.Error()
	var pg interface{ SQLState() string }
	switch {
	case errors.As(err, &pg) && pg.SQLState() == "25006":
		return fmt.Errorf("the server or the session is read-only, connect to the primary: %w", err)
	case errors.As(err, &pg) && pg.SQLState() == "42501":
		return &PermissionError{User: "of this connection", Right: "a right", On: deniedOn(text), Err: err,
			Fix: "run it as the owner of the tables, who alone may change them"}
	case strings.Contains(text, "Error 1142"), strings.Contains(text, "Error 1044"):
		return c.explainMySQL(ctx, err)
	case strings.Contains(text, "readonly database"), strings.Contains(text, "unable to open database file"):
		return &PermissionError{Right: "write access", On: "the database file", Err: err,
			Fix: "make the file and its folder writable, and open it without mode=ro"}
	}
	return err
}

// deniedOn reads the object from "permission denied for table outbox_events" or "must be owner of …".
func deniedOn(text string) string {
	for _, lead := range []string{"permission denied for ", "must be owner of "} {
		if _, object, found := strings.Cut(text, lead); found {
			object, _, _ = strings.Cut(object, " (SQLSTATE")
			return object
		}
	}
	return "the tables"
}

// explainMySQL reads the right from "CREATE command denied to user ...". Error 1044 names none: it is
// about the whole database.
func (c catalogue) explainMySQL(ctx context.Context, err error) error {
	var user, database string
	asked := c.conn.QueryRowContext(ctx, "SELECT CURRENT_USER(), DATABASE()").Scan(&user, &database)
	if asked != nil {
		return err
	}
	name, host, _ := strings.Cut(user, "@")
	const needed = "CREATE, ALTER, INDEX, SELECT, INSERT"
	right := needed
	if before, _, denied := strings.Cut(err.Error(), " command denied"); denied {
		right = before[strings.LastIndex(before, " ")+1:]
	}
	return c.lacks(right, needed, c.dialect.QuoteIdent(database)+".*", "'"+name+"'@'"+host+"'", err)
}
