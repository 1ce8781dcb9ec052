// A stand-in for a kubelet: exec, attach, port-forward and logs, with the streaming code that kubelets
// and container runtimes use. Commands run on this machine, so it is for tests only.
//
// It prints the address that it listens on, and then a line for each request.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idle     = 5 * time.Minute
	creation = 10 * time.Second
)

func main() {
	cert := flag.String("cert", "", "serving certificate")
	key := flag.String("key", "", "its key")
	clientCA := flag.String("client-ca", "", "authority of client certificates, which are then required")
	flag.Parse()

	config := &tls.Config{}
	if *clientCA != "" {
		pem, err := os.ReadFile(*clientCA)
		if err != nil {
			log.Fatal(err)
		}
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(pem)
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Listening on", listener.Addr())
	server := &http.Server{Handler: http.HandlerFunc(serve), TLSConfig: config}
	log.Fatal(server.ServeTLS(listener, *cert, *key))
}

func serve(w http.ResponseWriter, req *http.Request) {
	who := ""
	if len(req.TLS.PeerCertificates) > 0 {
		who = req.TLS.PeerCertificates[0].Subject.CommonName
	}
	fmt.Printf("%s %s by %q upgrade %q\n", req.Method, req.URL.RequestURI(), who, req.Header.Get("Upgrade"))
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case parts[0] == "exec" && len(parts) == 4:
		options, err := remotecommand.NewOptions(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		command := req.URL.Query()["command"]
		remotecommand.ServeExec(w, req, runtime{}, parts[2], "", parts[3], command, options, idle, creation, remotecommand.SupportedStreamingProtocols)
	case parts[0] == "attach" && len(parts) == 4:
		options, err := remotecommand.NewOptions(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeAttach(w, req, runtime{}, parts[2], "", parts[3], options, idle, creation, remotecommand.SupportedStreamingProtocols)
	case parts[0] == "portForward" && len(parts) == 3:
		options, err := portforward.NewV4Options(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, req, runtime{}, parts[2], "", options, idle, creation, portforward.SupportedProtocols)
	case parts[0] == "containerLogs" && len(parts) == 4:
		logs(w, req, parts[3])
	case parts[0] == "echo":
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %s by %s\n", req.Method, req.URL.RequestURI(), who)
		io.Copy(w, req.Body)
	default:
		http.NotFound(w, req)
	}
}

// logs writes ten lines, or what of them the query asks for. Followed, more lines come until the client
// is gone.
func logs(w http.ResponseWriter, req *http.Request, container string) {
	query := req.URL.Query()
	if container == "broken" {
		http.Error(w, "the container is broken", http.StatusBadRequest)
		return
	}
	name := "line"
	if query.Get("previous") == "true" {
		name = "previous line"
	}
	first := 1
	if tail, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		first = max(1, 11-tail)
	}
	w.Header().Set("Transfer-Encoding", "chunked")
	for line := first; line <= 10; line++ {
		fmt.Fprintf(w, "%s: %s %d\n", container, name, line)
	}
	w.(http.Flusher).Flush()
	for line := 11; query.Get("follow") == "true"; line++ {
		select {
		case <-req.Context().Done():
			fmt.Println("the reader of the logs is gone")
			return
		case <-time.After(20 * time.Millisecond):
			fmt.Fprintf(w, "%s: %s %d\n", container, name, line)
			w.(http.Flusher).Flush()
		}
	}
}

type runtime struct{}

// ExecInContainer runs the command on this machine. With a terminal it writes the sizes that it gets.
func (runtime) ExecInContainer(ctx context.Context, name, uid, container string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, timeout time.Duration) error {
	if len(cmd) > 0 && cmd[0] == "terminal-size" {
		size := <-resize
		fmt.Fprintf(out, "%dx%d\n", size.Width, size.Height)
		return nil
	}
	if len(cmd) == 0 {
		return fmt.Errorf("no command")
	}
	command := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	if out != nil {
		command.Stdout = out
	}
	if errOut != nil {
		command.Stderr = errOut
	}
	if in != nil {
		// Not as Stdin: Wait would then wait for the end of what the client sends.
		pipe, err := command.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			io.Copy(pipe, in)
			pipe.Close()
		}()
	}
	err := command.Run()
	if exit, ok := err.(*exec.ExitError); ok {
		return utilexec.CodeExitError{Err: exit, Code: exit.ExitCode()}
	}
	return err
}

// AttachContainer greets and sends back what comes in.
func (runtime) AttachContainer(ctx context.Context, name, uid, container string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	fmt.Fprintf(out, "attached to %s of %s\n", container, name)
	if errOut != nil {
		fmt.Fprintln(errOut, "this is stderr")
	}
	if in != nil {
		io.Copy(out, in)
	}
	return nil
}

// PortForward connects to the port of this machine.
func (runtime) PortForward(ctx context.Context, name, uid string, port int32, stream io.ReadWriteCloser) error {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	done := make(chan struct{}, 2)
	go func() {
		io.Copy(conn, stream)
		conn.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}()
	go func() {
		io.Copy(stream, conn)
		done <- struct{}{}
	}()
	<-done
	<-done
	return nil
}
