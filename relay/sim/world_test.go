//go:build synctests

package sim

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

// world is one run of a scenario: a database, a cluster, services that write, and relays.
type world struct {
	scenario
	t     *testing.T
	log   *journal
	start time.Time
	path  string
	db    *sql.DB // the services'

	net     kfake.VirtualNetwork
	cluster *kfake.Cluster
	rest    sync.WaitGroup // processes that were killed
	linger  sync.WaitGroup // connections that nobody but the cluster has any more

	mu       sync.Mutex
	failures int
	over     bool           // there are no faults any more
	calls    map[string]int // by process and kind
	written  map[string]outbox.Event
	alive    map[*process]bool
}

// ledgerTable has a row for each event, written in its transaction. Counter counts the events of a key.
const ledgerTable = `CREATE TABLE ledger (seq INTEGER PRIMARY KEY, event_id TEXT NOT NULL, key TEXT NOT NULL, counter INTEGER NOT NULL);
CREATE INDEX ledger_key ON ledger (key);`

// blank is a database with empty tables.
var blank = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp(ramDir(), "postrider-sim")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "blank.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_journal_mode=WAL")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(schema.Print(outbox.SQLite) + ledgerTable)
	if closing := db.Close(); err != nil || closing != nil {
		return nil, fmt.Errorf("%w, %w", err, closing)
	}
	return os.ReadFile(path)
})

// ramDir is where files cost no disk, "" for the usual place.
func ramDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// newFile puts a database into a directory of the test's.
func newFile(t *testing.T) string {
	content, err := blank()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(ramDir(), "postrider-sim")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "app.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// newWorld makes the database's and the cluster's side.
func newWorld(t *testing.T, s scenario, path string) *world {
	w := &world{
		scenario: s, t: t, start: time.Now(), path: path, calls: map[string]int{}, written: map[string]outbox.Event{}, alive: map[*process]bool{},
	}
	w.log = &journal{start: w.start, loud: os.Getenv("POSTRIDER_SIM_LOG") != ""}
	var err error
	w.db, err = sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_synchronous=off&_busy_timeout=60000")
	require.NoError(t, err)
	ports := make([]int, s.brokers)
	for i := range ports {
		ports[i] = 9092 + i
	}
	opts := []kfake.Opt{kfake.NumBrokers(s.brokers), kfake.Ports(ports...), kfake.ListenFn(w.net.Listen)}
	for i := range s.topics {
		opts = append(opts, kfake.SeedTopics(s.partitions, topicName(i)))
	}
	w.cluster, err = kfake.NewCluster(opts...)
	require.NoError(t, err)
	return w
}

func topicName(i int) string { return fmt.Sprintf("t%d", i) }

func (w *world) close() {
	w.rest.Wait()
	w.cluster.Close()
	w.linger.Wait()
	_ = w.db.Close()
	if w.t.Failed() {
		w.t.Logf("seed %d: what happened stands in %s; scenario %+v", w.seed, w.log.save(w.seed), w.scenario)
	}
}

func (w *world) now() time.Duration { return time.Since(w.start) }

func (w *world) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// call counts a process's calls of a kind.
func (w *world) call(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[kind]++
	return w.calls[kind]
}

// fateOf draws what the network does to a request.
func (w *world) fateOf(string, int16) fate {
	return fate{}
}

// live runs the world from its first to its last moment.
func (w *world) live() {
	var services, slots sync.WaitGroup
	for i := range w.writers {
		services.Go(func() { w.write(i) })
	}
	last := make([]*process, w.relays)
	for i := range last {
		slots.Go(func() { last[i] = w.slot(i) })
	}
	services.Wait()
	slots.Wait()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.log.add("world", "no faults any more")
	w.drainTable()
	w.checkMemory(last)
	for _, p := range last {
		p.end()
	}
	w.rest.Wait()
	if !w.t.Failed() {
		w.check()
	}
}

// pending counts what still has a way to go.
func (w *world) pending() (n int) {
	err := w.db.QueryRow("SELECT count(*) FROM outbox_events WHERE status NOT IN ('SENT', 'DEAD')").Scan(&n)
	require.NoError(w.t, err)
	return n
}

// drainTable waits until the table is done.
func (w *world) drainTable() {
	limit := w.session + 2*time.Second + 5*time.Second
	began := time.Now()
	for w.pending() > 0 {
		if time.Since(began) > limit {
			w.fail("P1, P7: %d events are left %s after the last fault", w.pending(), limit)
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
	w.log.add("world", "drained", time.Since(began))
	time.Sleep(2 * time.Second)
}

// bounded is a context for what the world itself asks.
func bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
