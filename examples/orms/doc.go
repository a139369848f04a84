// Package orms shows how a service that uses GORM, sqlx, bun or ent hands its transaction to the
// outbox writer. Each example is a test that runs on SQLite, so `go test ./...` needs Go alone.
//
// It is a module of its own, outside the workspace, so that nobody else downloads four ORMs.
package orms
