//go:build tools

// Package tools pins the command that tests/peers/build makes.
package tools

import _ "github.com/opencontainers/runc"
