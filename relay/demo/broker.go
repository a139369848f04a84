package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
)

// topicName is where the orders' events go; the article's name.
const (
	topicName  = "order-events"
	partitions = 3
)

// broker is an in-process Kafka behind a door that can be shut.
type broker struct {
	cluster *kfake.Cluster
	door    *door
}

// startBroker listens on a free port of 127.0.0.1.
func startBroker(ctx context.Context) (*broker, error) {
	d := &door{conns: map[net.Conn]struct{}{}, opened: make(chan struct{})}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), // one port, so that one door shuts all of it
		kfake.ListenFn(func(network, address string) (net.Listener, error) { return d.listen(ctx, network, address) }),
		kfake.SeedTopics(partitions, topicName),
	)
	if err != nil {
		return nil, fmt.Errorf("start the in-process Kafka: %w", err)
	}
	return &broker{cluster: cluster, door: d}, nil
}

func (b *broker) addr() string { return b.door.Addr().String() }

// close ends the broker; calling it again does nothing.
func (b *broker) close() {
	b.cluster.Close()
	b.door.shut()
}

// door is the broker's listener. Shut, it is what an outage is to clients: connections break, answers
// on their way are lost, and new connections are refused, while the broker keeps its log, as a real
// one does on its disk. Reopened, it listens on the same port.
type door struct {
	mu     sync.Mutex
	addr   net.Addr
	ln     net.Listener // nil while shut
	conns  map[net.Conn]struct{}
	opened chan struct{} // closed when ln was set, or for good by Close
	closed bool
}

func (d *door) listen(ctx context.Context, network, address string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.ln, d.addr = ln, ln.Addr()
	close(d.opened)
	return d, nil
}

// Accept waits through outages.
func (d *door) Accept() (net.Conn, error) {
	for {
		d.mu.Lock()
		ln, opened, closed := d.ln, d.opened, d.closed
		d.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		if ln == nil {
			<-opened
			continue
		}
		conn, err := ln.Accept()
		if err == nil && d.keep(ln, conn) {
			return &visitor{Conn: conn, door: d}, nil
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return nil, err
		}
	}
}

// keep notes a connection, unless the door was shut while it came in.
func (d *door) keep(ln net.Listener, conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ln != ln {
		_ = conn.Close()
		return false
	}
	d.conns[conn] = struct{}{}
	return true
}

// Addr is the address that clients connect to, while shut too.
func (d *door) Addr() net.Addr { return d.addr }

// Close ends the listener for good.
func (d *door) Close() error {
	d.shut()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.opened)
	}
	return nil
}

// shut begins an outage; it does nothing during one.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ln == nil {
		return
	}
	_ = d.ln.Close()
	d.ln = nil
	d.opened = make(chan struct{})
	for conn := range d.conns {
		_ = conn.Close()
	}
	clear(d.conns)
}

// open ends an outage. It fails when another process has taken the port meanwhile.
func (d *door) open(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ln != nil || d.closed {
		return nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.addr.String())
	if err != nil {
		return fmt.Errorf("listen on %s again: %w", d.addr, err)
	}
	d.ln = ln
	close(d.opened)
	return nil
}

func (d *door) isOpen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ln != nil
}

// visitor is a connection that leaves the door's list when it ends.
type visitor struct {
	net.Conn
	door *door
}

func (v *visitor) Close() error {
	v.door.mu.Lock()
	delete(v.door.conns, v.Conn)
	v.door.mu.Unlock()
	return v.Conn.Close()
}

// kcatLine is the command with which a person reads the topic from another terminal.
func kcatLine(addr string) string {
	return "kcat -C -u -b " + addr + " -t " + topicName
}
