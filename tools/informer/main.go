// Runs client-go's shared informers against a server while others write, and says whether they saw what was written:
// every version of every object once and in order, nothing twice, no second list, and in the end the same as a list shows.
//
// It reads protobuf and asks for the initial state as a stream of events (WatchList), as controllers do.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "of the administrator")
	namespace := flag.String("namespace", "default", "to work in; it should be empty")
	seconds := flag.Int("seconds", 5, "to go on writing")
	flag.Parse()
	if err := run(*kubeconfig, *namespace, time.Duration(*seconds)*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// How many write at the same time, each to objects of its own.
const writers = 4

// What is there before the informers start.
const initialObjects = 50

func run(kubeconfig, namespace string, writing time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 1000, 1000
	writer, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	requests := &counter{}
	reader, err := kubernetes.NewForConfig(informing(config, requests))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), writing+2*time.Minute)
	defer cancel()

	written := newHistory()
	for i := range initialObjects {
		if err := create(ctx, writer, namespace, fmt.Sprintf("initial-%d", i), written); err != nil {
			return err
		}
	}

	seen := newHistory()
	factory := informers.NewSharedInformerFactoryWithOptions(reader, 0, informers.WithNamespace(namespace))
	configMaps := factory.Core().V1().ConfigMaps().Informer()
	secrets := factory.Core().V1().Secrets().Informer()
	for _, informer := range []cache.SharedIndexInformer{configMaps, secrets} {
		if _, err := informer.AddEventHandler(recorder(seen)); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), configMaps.HasSynced, secrets.HasSynced) {
		return fmt.Errorf("the informers never synced")
	}
	// What was there before was seen in its last version only.
	written.keepLast("initial-")

	if err := write(ctx, writer, namespace, writing, written); err != nil {
		return err
	}
	if err := seen.catchUp(ctx, written); err != nil {
		return err
	}
	if err := sameAsList(ctx, writer, namespace, configMaps.GetStore()); err != nil {
		return err
	}
	if err := requests.check(2); err != nil {
		return err
	}
	summary := map[string]any{
		"objects": len(written.versions), "events": seen.events, "lists": requests.lists,
		"streams": requests.streams, "watches": requests.watches, "protobuf": requests.protobuf,
	}
	return json.NewEncoder(os.Stdout).Encode(summary)
}

// The same server, as informers talk to it.
func informing(config *rest.Config, requests *counter) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		requests.next = next
		return requests
	})
	return config
}

// Counts what informers ask for.
type counter struct {
	next http.RoundTripper
	sync.Mutex
	lists, streams, watches, protobuf int
	refused                           []string
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	c.Lock()
	defer c.Unlock()
	query := request.URL.Query()
	switch {
	case query.Get("watch") != "true":
		c.lists++
	case query.Get("sendInitialEvents") == "true":
		c.streams++
	default:
		c.watches++
	}
	if err == nil && strings.HasPrefix(response.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf") {
		c.protobuf++
	}
	if err == nil && response.StatusCode != http.StatusOK {
		c.refused = append(c.refused, fmt.Sprintf("%d %s", response.StatusCode, request.URL))
	}
	return response, err
}

// Each informer begins with one stream and never has to begin again.
func (c *counter) check(informers int) error {
	c.Lock()
	defer c.Unlock()
	total := c.lists + c.streams + c.watches
	if c.lists != 0 || c.streams != informers || len(c.refused) != 0 || c.protobuf != total {
		return fmt.Errorf("%d lists, %d streams for %d informers, %d watches, %d of them protobuf, refused %v",
			c.lists, c.streams, informers, c.watches, c.protobuf, c.refused)
	}
	return nil
}

// The versions of each object, in order. A deletion is "deleted".
type history struct {
	sync.Mutex
	versions map[string][]string
	events   int
}

func newHistory() *history { return &history{versions: map[string][]string{}} }

func (h *history) add(kind, name, version string) {
	h.Lock()
	defer h.Unlock()
	h.events++
	key := kind + "/" + name
	h.versions[key] = append(h.versions[key], version)
}

func (h *history) keepLast(prefix string) {
	h.Lock()
	defer h.Unlock()
	for key, versions := range h.versions {
		if _, name, _ := strings.Cut(key, "/"); strings.HasPrefix(name, prefix) {
			h.versions[key] = versions[len(versions)-1:]
		}
	}
}

const deleted = "deleted"

// Waits until everything that was written has been seen, then compares all of it.
func (h *history) catchUp(ctx context.Context, written *history) error {
	for {
		difference := h.difference(written)
		if difference == "" {
			// Whatever comes twice would come now.
			time.Sleep(300 * time.Millisecond)
			if difference = h.difference(written); difference == "" {
				return nil
			}
			return fmt.Errorf("seen more than was written: %s", difference)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not seen what was written: %s", difference)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (h *history) difference(written *history) string {
	h.Lock()
	defer h.Unlock()
	written.Lock()
	defer written.Unlock()
	var keys []string
	for key := range written.versions {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		if !reflect.DeepEqual(h.versions[key], written.versions[key]) {
			return fmt.Sprintf("%s: written %v, seen %v", key, written.versions[key], h.versions[key])
		}
	}
	return ""
}

// Records the events that an informer delivers to its handlers. What the server makes by itself in a namespace is left out.
func recorder(seen *history) cache.ResourceEventHandler {
	note := func(object any, gone bool) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			seen.add("unknown", unknown.Key, "a deletion that was missed")
			return
		}
		meta := object.(metav1.Object)
		if meta.GetLabels()["informer"] == "" {
			return
		}
		kind := "configmap"
		if _, ok := object.(*corev1.Secret); ok {
			kind = "secret"
		}
		version := meta.GetResourceVersion()
		if gone {
			version = deleted
		}
		seen.add(kind, meta.GetName(), version)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note(object, false) },
		UpdateFunc: func(_, object any) { note(object, false) },
		DeleteFunc: func(object any) { note(object, true) },
	}
}

func labels() map[string]string { return map[string]string{"informer": "yes"} }

func create(ctx context.Context, client kubernetes.Interface, namespace, name string, written *history) error {
	meta := metav1.ObjectMeta{Name: name, Labels: labels()}
	made, err := client.CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	written.add("configmap", name, made.ResourceVersion)
	return nil
}

// Several writers, each creating, updating, patching and deleting objects of its own.
func write(ctx context.Context, client kubernetes.Interface, namespace string, writing time.Duration, written *history) error {
	until := time.Now().Add(writing)
	failures := make(chan error, writers)
	for id := range writers {
		go func() { failures <- writeOne(ctx, client, namespace, id, until, written) }()
	}
	for range writers {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

func writeOne(ctx context.Context, client kubernetes.Interface, namespace string, id int, until time.Time, written *history) error {
	configMaps, secrets := client.CoreV1().ConfigMaps(namespace), client.CoreV1().Secrets(namespace)
	for round := 0; time.Now().Before(until); round++ {
		name := fmt.Sprintf("writer-%d-%d", id, round)
		if err := create(ctx, client, namespace, name, written); err != nil {
			return err
		}
		object, err := configMaps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for change := range 4 {
			object.Data["n"] = strconv.Itoa(change + 1)
			if object, err = configMaps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
				return err
			}
			written.add("configmap", name, object.ResourceVersion)
		}
		patch := []byte(`{"data":{"patched":"yes"}}`)
		object, err = configMaps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return err
		}
		written.add("configmap", name, object.ResourceVersion)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels()}, StringData: map[string]string{"a": "b"}}
		if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return err
		}
		written.add("secret", name, secret.ResourceVersion)
		// Every third round leaves something behind.
		if round%3 != 0 {
			if err := configMaps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			written.add("configmap", name, deleted)
		}
		if err := secrets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		written.add("secret", name, deleted)
	}
	return nil
}

// The store of an informer and a list taken afterwards show the same objects.
func sameAsList(ctx context.Context, client kubernetes.Interface, namespace string, store cache.Store) error {
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != len(store.List()) {
		return fmt.Errorf("the list has %d objects, the store %d", len(list.Items), len(store.List()))
	}
	for i := range list.Items {
		listed := &list.Items[i]
		stored, found, err := store.GetByKey(namespace + "/" + listed.Name)
		if err != nil || !found {
			return fmt.Errorf("%s is not in the store: %v", listed.Name, err)
		}
		if !reflect.DeepEqual(stored.(*corev1.ConfigMap), listed) {
			return fmt.Errorf("%s differs: listed %v, stored %v", listed.Name, listed, stored)
		}
	}
	return nil
}
