// Package relaytest holds the conformance suites that every store, source and sink must pass, and
// nothing that production code imports. It owns what the interfaces of package relay promise, said as
// tests; it refuses to know any database or broker, which a Harness brings along.
package relaytest
