// Package app composes the relay from a configuration: it opens the store, the Kafka client and the
// HTTP server, waits for servers that do not answer yet, and closes everything in reverse order. It
// holds no rule of its own about events, and never touches signals or flags.
package app
