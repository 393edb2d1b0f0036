// SPDX-License-Identifier: Apache-2.0
// Copyright the csi-nfs authors

// csi-node-driver-registrar stands in for the published one where that cannot be built: it tells
// the kubelet the driver's name and socket, and ends when the kubelet refuses the driver, so that
// the pod's restart tries again. It knows the options that deploy/ gives.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type server struct {
	registration.UnimplementedRegistrationServer
	name, socket string
}

func (s *server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              s.name,
		Endpoint:          s.socket,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (s *server) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatalf("the kubelet refuses %s: %s", s.name, status.Error)
	}
	log.Printf("%s is registered", s.name)
	return &registration.RegistrationStatusResponse{}, nil
}

// driverName asks the driver until it answers: the containers of a pod start together.
func driverName(address string, timeout time.Duration) string {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		answer, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
		cancel()
		if err == nil {
			return answer.Name
		}
		log.Print(err)
		time.Sleep(200 * time.Millisecond)
	}
}

func main() {
	address := flag.String("csi-address", "", "socket of the driver")
	socket := flag.String("kubelet-registration-path", "", "the same socket, as the kubelet sees it")
	endpoint := flag.String("http-endpoint", "", "address to answer /healthz on")
	folder := flag.String("plugin-registration-path", "/registration", "folder of the registration sockets")
	timeout := flag.Duration("timeout", 5*time.Second, "deadline of a call of the driver")
	flag.Int("v", 0, "verbosity, ignored")
	flag.Parse()

	name := driverName(*address, *timeout)
	path := *folder + "/" + name + "-reg.sock"
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	if *endpoint != "" {
		http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		go func() { log.Fatal(http.ListenAndServe(*endpoint, nil)) }()
	}
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, &server{name: name, socket: *socket})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		registrar.GracefulStop() // closes the listener, which removes the socket
	}()
	log.Printf("stand-in, %s at %s", name, path)
	if err := registrar.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
