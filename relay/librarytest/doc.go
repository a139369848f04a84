// Package librarytest holds the tests of the library module that need a database driver and a real
// server, so that the library's own go.mod requires neither. It owns no code of the product.
package librarytest
