package sqlite

import (
	"fmt"
	"net/url"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// location is what a database.url says: the file and how to open it.
type location struct {
	path        string
	busyTimeout time.Duration // defaults to 10 s
	synchronous string        // defaults to NORMAL
}

const urlForm = `use sqlite:file.db or sqlite:///var/lib/app/file.db, with percent-encoding for ?, # and %`

// parseURL reads sqlite:file.db?busy_timeout=5s&synchronous=full. Options that it does not know are
// errors.
func parseURL(raw string) (location, error) {
	loc := location{busyTimeout: 10 * time.Second, synchronous: "NORMAL"}
	rest, ok := strings.CutPrefix(raw, "sqlite:")
	if !ok {
		return loc, usage("database.url", "is not a SQLite URL", urlForm)
	}
	rest = strings.TrimPrefix(rest, "//") // sqlite:///abs and sqlite://rel
	name, query, _ := strings.Cut(rest, "?")
	path, err := url.PathUnescape(name)
	if err != nil || strings.ContainsRune(path, 0) {
		return loc, usage("database.url", "the file's name is not percent-encoded text", urlForm)
	}
	if path == "" || strings.Contains(path, ":memory:") {
		return loc, usage("database.url", "names no file: a database in memory cannot be shared with the service", urlForm)
	}
	if path, err = filepath.Abs(path); err != nil {
		return loc, fmt.Errorf("find the database's file: %w", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // one file, one lock, whatever it is called
	}
	loc.path = path
	values, err := url.ParseQuery(query)
	if err != nil {
		return loc, usage("database.url", "its options are not percent-encoded text", urlForm)
	}
	return loc, loc.setOptions(values)
}

func (l *location) setOptions(values url.Values) error {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		value := values.Get(name)
		switch name {
		case "busy_timeout":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 || d > 10*time.Minute {
				return usage("database.url", fmt.Sprintf("busy_timeout=%q is not a duration up to 10m", value),
					"write it like busy_timeout=5s")
			}
			l.busyTimeout = d
		case "synchronous":
			l.synchronous = strings.ToUpper(value)
			if l.synchronous != "NORMAL" && l.synchronous != "FULL" && l.synchronous != "EXTRA" {
				return usage("database.url", fmt.Sprintf("synchronous=%q is not known", value), "use normal, full or extra")
			}
		default:
			return usage("database.url", fmt.Sprintf("option %q is not known", name), "use busy_timeout or synchronous")
		}
	}
	return nil
}

// dsn is the driver's form. mode=rw never makes a file that is not there.
func (l *location) dsn(path, mode string, busy time.Duration) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_error_rc": {"true"}, "_dqs": {"false"}}
	q.Add("_busy_timeout", strconv.FormatInt(busy.Milliseconds(), 10))
	q.Add("_synchronous", l.synchronous)
	u.RawQuery = q.Encode()
	return u.String()
}

// usage is a set-up error about what the configuration says.
func usage(thing, reason, fix string) *relay.SetupError {
	return &relay.SetupError{Kind: relay.SetupUsage, Thing: thing, Reason: reason, Fix: fix}
}
