//go:build tools

// Package tools pins the command that tests/peers/build makes.
package tools

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
