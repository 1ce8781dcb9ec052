// Facts writes what Kubernetes' published Go modules say about the built-in types, as the tables that the
// tests of crates/builtin hold the definition files against:
//
//	openapi-facts.tsv   each definition and field of the published OpenAPI documents, without descriptions
//	zero-values.tsv     each type, empty, as Go encodes it in JSON and in protobuf
//	filled-values.tsv   the same with every field set
//	../api/go-types.tsv kube-apiserver's internal structs that errors show
//
// On the way to the next release of Kubernetes: raise the versions in go.mod and below, run this, and
// change the definition files until the tests pass.
//
//	go run . ../../crates/builtin/tests
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const kubernetes = "v1.36.4"
const api = "v0.36.4"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: facts <directory for the tables>")
		os.Exit(2)
	}
	write("openapi-facts.tsv", openAPIFacts())
	write("zero-values.tsv", values(false))
	write("filled-values.tsv", values(true))
	write("../api/go-types.tsv", internalTypes())
}

func write(name string, lines []string) {
	text := strings.Join(lines, "\n") + "\n"
	must(0, os.WriteFile(filepath.Join(os.Args[1], name), []byte(text), 0o644))
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
