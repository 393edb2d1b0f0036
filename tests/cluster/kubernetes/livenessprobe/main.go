// SPDX-License-Identifier: Apache-2.0
// Copyright the csi-nfs authors

// livenessprobe stands in for the published one where that cannot be built: it answers GET /healthz
// by a Probe call to the driver. It knows the options that deploy/ gives.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	address := flag.String("csi-address", "", "socket of the driver")
	timeout := flag.Duration("probe-timeout", time.Second, "deadline of a Probe call")
	endpoint := flag.String("http-endpoint", ":9808", "address to listen on")
	flag.Int("v", 0, "verbosity, ignored")
	flag.Parse()

	conn, err := grpc.NewClient("unix://"+*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	identity := csi.NewIdentityClient(conn)
	http.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), *timeout)
		defer cancel()
		answer, err := identity.Probe(ctx, &csi.ProbeRequest{})
		if err != nil {
			log.Print(err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if answer.Ready != nil && !answer.Ready.Value {
			log.Print("not ready")
			http.Error(w, "not ready", http.StatusInternalServerError)
		}
	})
	log.Printf("stand-in, listening on %s", *endpoint)
	log.Fatal(http.ListenAndServe(*endpoint, nil))
}
