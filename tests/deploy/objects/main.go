// SPDX-License-Identifier: Apache-2.0
// Copyright the csi-nfs authors

// objects reads Kubernetes objects, as YAML documents, from standard input and decodes each into the
// type of its API, as strictly as the API server does on request: a field that the type does not
// have, a key given twice and a value of another type are errors. It prints one line for each
// problem, and "unknown NAME" for an object whose API it does not know, and exits 1 for a problem.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if err := apiextensions.AddToScheme(scheme.Scheme); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	failed := false
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		name, empty := nameOf(text)
		if empty {
			continue
		}
		_, _, err = decoder.Decode(text, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			fmt.Println("unknown", name)
		} else if err != nil {
			fmt.Printf("%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// nameOf returns kind and name of a document, and whether it holds nothing but comments.
func nameOf(text []byte) (string, bool) {
	object := unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		return "a document", false
	}
	return object.GetKind() + " " + object.GetName(), len(object.Object) == 0
}
