// Package config turns a file, the environment and flags into one typed Config and reports every
// problem at once, each with its place. It owns the keys, their defaults and the presets of known
// tables. It refuses to know databases and Kafka clients: what only they can judge is injected.
package config
