package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// maxPeers is how many relays may share a table: each has a lock with a number.
const maxPeers = 64

// tableLock is the locks of a table. The server's named locks are exclusive, so relays that may work beside one
// another have one each, with a number. With lanes a second one of the same number says of which group its relay is.
// All of them are looked at and taken under another lock, the guard, so that looking and taking are one step.
type tableLock struct {
	base  string
	claim relay.ClaimMode
	group string // claim: lanes

	unlike string // see relay.StoreOptions
}

func (s *Store) tableLock() tableLock {
	c := &s.layout().catalog
	sum := sha256.Sum256([]byte(strings.ToLower(c.schema) + "\x00" + strings.ToLower(c.name)))
	l := tableLock{base: fmt.Sprintf("postrider-%x", sum[:12]), claim: s.options.Claim, unlike: s.options.Unlike()}
	if l.claim == relay.ClaimLanes {
		sum := sha256.Sum256([]byte(s.options.Peers()))
		l.group = fmt.Sprintf("%x", sum[:4])
	}
	return l
}

// The names fit the 64 characters that a lock's name may have; they are one space for the server.
func (l *tableLock) guard() string  { return l.base + "-guard" }
func (l *tableLock) single() string { return l.base + "-single" }
func (l *tableLock) numbered(kind string, i int) string {
	return fmt.Sprintf("%s-%s-%d", l.base, kind, i)
}

// user is a session that holds one of the locks.
type user struct {
	mode    relay.ClaimMode
	session int64
	peer    bool // may work beside this relay
}

// users says who holds which of the table's locks, and the first number that is free for this relay's mode.
func (l *tableLock) users(ctx context.Context, conn *sql.Conn) (users []user, free int, err error) {
	names := []string{l.single()}
	for i := range maxPeers {
		names = append(names, l.numbered("rows", i), l.numbered("lanes", i), l.numbered("group-"+l.group, i))
	}
	held := make([]sql.NullInt64, len(names))
	into := make([]any, len(names))
	for i := range names {
		into[i], names[i] = &held[i], "IS_USED_LOCK("+quote(names[i])+")"
	}
	if err := conn.QueryRowContext(ctx, "SELECT "+strings.Join(names, ", ")).Scan(into...); err != nil {
		return nil, 0, fmt.Errorf("look who has the table: %w", err)
	}
	note := func(mode relay.ClaimMode, at sql.NullInt64, peer bool) {
		if at.Valid {
			users = append(users, user{mode: mode, session: at.Int64, peer: peer})
		}
	}
	note(relay.ClaimSingle, held[0], false)
	free = maxPeers
	for i := maxPeers - 1; i >= 0; i-- {
		rows, lanes, group := held[3*i+1], held[3*i+2], held[3*i+3]
		note(relay.ClaimRows, rows, l.claim == relay.ClaimRows)
		note(relay.ClaimLanes, lanes, l.claim == relay.ClaimLanes && group == lanes)
		if l.claim == relay.ClaimRows && !rows.Valid || l.claim == relay.ClaimLanes && !lanes.Valid {
			free = i
		}
	}
	return users, free, nil
}

// try takes the locks of this relay if nobody has the table beside whom it may not work, and gives the name of the
// first; else it says who has it. A user without a session means that another relay is looking at this moment.
func (l *tableLock) try(ctx context.Context, conn *sql.Conn) (name string, other *user, err error) {
	if got, err := getLock(ctx, conn, l.guard(), 5); err != nil || !got {
		return "", &user{}, err
	}
	name, other, err = l.guarded(ctx, conn)
	if err != nil {
		return "", nil, err
	}
	if _, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+quote(l.guard())+")"); err != nil {
		return "", nil, fmt.Errorf("release the guard: %w", err)
	}
	return name, other, nil
}

func (l *tableLock) guarded(ctx context.Context, conn *sql.Conn) (name string, other *user, err error) {
	users, free, err := l.users(ctx, conn)
	if err != nil {
		return "", nil, err
	}
	for i := range users {
		if !users[i].peer {
			return "", &users[i], nil
		}
	}
	if free == maxPeers && l.claim != relay.ClaimSingle {
		return "", &users[0], nil
	}
	names := []string{l.single()}
	switch l.claim {
	case relay.ClaimRows:
		names[0] = l.numbered("rows", free)
	case relay.ClaimLanes:
		names = []string{l.numbered("lanes", free), l.numbered("group-"+l.group, free)}
	}
	for _, name := range names {
		if got, err := getLock(ctx, conn, name, 0); err != nil || !got {
			return "", &user{}, err
		}
	}
	return names[0], nil, nil
}

func getLock(ctx context.Context, conn *sql.Conn, name string, seconds int) (bool, error) {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, seconds).Scan(&got)
	if err != nil {
		return false, fmt.Errorf("lock the table: %w", err)
	}
	return got.Int64 == 1, nil
}

// describe says who a user of the locks is, as far as this database user may see.
func (l *tableLock) describe(ctx context.Context, conn *sql.Conn, u *user) string {
	who := fmt.Sprintf("connection %d", u.session)
	var host, name string
	if conn.QueryRowContext(ctx, "SELECT host FROM information_schema.processlist WHERE id = ?",
		u.session).Scan(&host) == nil {
		who += " from " + host
	}
	who = fmt.Sprintf("claim: %s, %s", u.mode, who)
	if conn.QueryRowContext(ctx, `SELECT attr_value FROM performance_schema.session_account_connect_attrs
WHERE processlist_id = ? AND attr_name = 'program_name'`, u.session).Scan(&name) == nil {
		who = strings.TrimPrefix(name, "postrider ") + ", " + who
	}
	switch {
	case u.peer:
		who += fmt.Sprintf(", as one of %d relays, which is the most", maxPeers)
	case u.mode == l.claim && l.claim == relay.ClaimLanes:
		who += ", " + l.unlike
	}
	return who
}
