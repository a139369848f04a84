//go:build synctests

package sim

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

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

	net      kfake.VirtualNetwork
	cluster  *kfake.Cluster
	topicIDs map[string][16]byte
	care     *kgo.Client    // see keepAlive
	rest     sync.WaitGroup // processes that were killed
	linger   sync.WaitGroup // connections that nobody but the cluster has any more

	mu       sync.Mutex
	failures int
	over     bool           // there are no faults any more
	calls    map[string]int // by process and kind
	written  map[string]outbox.Event
	links    []*link
	down     map[string]bool    // brokers, by address
	nursed   time.Time          // see nurse
	synced   int32              // the last generation whose leader has sent the assignment
	owners   map[int32]*process // who began to read the lane last
	excused  map[string]bool    // keys, see excuse
	wasDead  map[string]bool
	revived  map[string]bool // made due again by a person
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
		return nil, fmt.Errorf("make a database: %w, %w", err, closing)
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
		scenario: s, t: t, start: time.Now(), path: path, calls: map[string]int{}, written: map[string]outbox.Event{},
		topicIDs: map[string][16]byte{}, down: map[string]bool{}, wasDead: map[string]bool{}, owners: map[int32]*process{}, excused: map[string]bool{}, revived: map[string]bool{},
	}
	w.log = &journal{start: w.start, loud: os.Getenv("POSTRIDER_SIM_LOG") != ""}
	clocks.Store(w.start.Year(), w.databaseClock)
	var err error
	w.db, err = sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_synchronous=off&_busy_timeout=60000")
	require.NoError(t, err)
	ports := make([]int, s.brokers)
	for i := range ports {
		ports[i] = firstPort + i
	}
	w.cluster, err = kfake.NewCluster(kfake.NumBrokers(s.brokers), kfake.Ports(ports...), kfake.ListenFn(w.net.Listen))
	require.NoError(t, err)
	w.care, err = kgo.NewClient(kgo.SeedBrokers(brokerAddress(s.brokers-1)), kgo.Dialer(w.net.DialContext), kgo.DisableClientMetrics())
	require.NoError(t, err)
	for i := range s.topics {
		w.createTopic(topicName(i), s.partitions)
	}
	if s.deadTopic {
		w.createTopic(deadTopic, 1)
	}
	w.plant()
	return w
}

const firstPort = 9092

func brokerAddress(i int) string { return fmt.Sprintf("localhost:%d", firstPort+i) }

func topicName(i int) string { return fmt.Sprintf("t%d", i) }

func (w *world) createTopic(name string, partitions int32) {
	require.NoError(w.t, w.cluster.CreateTopic(name, partitions, map[string]string{"max.message.bytes": fmt.Sprint(maxRecord)}))
	w.topicIDs[name] = w.cluster.TopicInfo(name).TopicID
}

// databaseClock is the database's time, which is not the relays'.
func (w *world) databaseClock(now time.Time) time.Time {
	shown := now.Add(w.skew)
	for _, j := range w.jumps {
		if now.Sub(w.start) >= j.at {
			shown = shown.Add(j.by)
		}
	}
	return shown
}

func (w *world) close() {
	w.care.Close()
	w.cluster.Close()
	w.linger.Wait()
	_ = w.db.Close()
	time.Sleep(w.session + 2*time.Second) // a coordinator's look for a leader's answer ends by itself
	clocks.Delete(w.start.Year())
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

func (w *world) isDown(address string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down[address]
}

// call counts calls of a kind.
func (w *world) call(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[kind]++
	return w.calls[kind]
}

// live runs the world from its first to its last moment.
func (w *world) live() {
	var services, slots sync.WaitGroup
	for i := range w.writers {
		services.Go(func() { w.write(i) })
	}
	done := make(chan struct{})
	var nursing sync.WaitGroup
	nursing.Go(func() { w.nurse(done) })
	defer nursing.Wait()
	defer close(done)
	services.Go(w.torment)
	services.Go(w.act)
	services.Go(func() {
		time.Sleep(w.span / 2)
		w.createTopic(comesLate, w.partitions)
	})
	last := make([]*process, w.relays)
	for i := range last {
		slots.Go(func() { last[i] = w.slot(i) })
	}
	services.Wait()
	slots.Wait()
	if slices.Contains(last, nil) { // it could not be opened, and has said so
		w.t.FailNow()
	}
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.log.add("world", "no faults any more")
	w.settleDown()
	w.checkMemory(last)
	for _, p := range last {
		p.end()
	}
	w.awaitDead()
	if !w.t.Failed() {
		w.check()
	}
}

// awaitDead holds that processes which were killed end too: nothing of theirs goes on for ever.
func (w *world) awaitDead() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.rest.Wait()
	}()
	if limit := w.drain + time.Minute; !sleepOr(limit, done) {
		return
	} else {
		w.fail("P8: a process that was killed is still at work %s later", limit)
	}
	<-done
}
