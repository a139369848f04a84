// Package relay is the flow that brings committed outbox rows to Kafka: read, gate, route, encode, send,
// settle, one stage a file. It owns the rules of order and failure, and knows no database, no Kafka
// client, no configuration and no HTTP: those implement the small interfaces declared here.
package relay
