// Starts controller-runtime's envtest twice in a row, from KUBEBUILDER_ASSETS, with definitions from a directory
// and a webhook, and does what suites do: custom resources, a refused object, owned objects, namespaces.
// Prints a line of JSON for each round; the first error ends it with status 1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	definitions := os.Args[1]
	for number := 1; number <= 2; number++ {
		took, err := round(definitions)
		if err != nil {
			fmt.Fprintf(os.Stderr, "round %d: %v\n", number, err)
			os.Exit(1)
		}
		line, _ := json.Marshal(map[string]any{"round": number, "milliseconds": took})
		fmt.Println(string(line))
	}
}

type times map[string]int64

func round(definitions string) (took times, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	took = times{}
	lap := time.Now()
	done := func(what string) {
		took[what] = time.Since(lap).Milliseconds()
		lap = time.Now()
	}
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{definitions},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{refusal()},
		},
	}
	config, err := environment.Start()
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	done("start")
	defer func() {
		lap = time.Now()
		if stopped := environment.Stop(); stopped != nil && err == nil {
			err = fmt.Errorf("stop: %w", stopped)
		}
		done("stop")
	}()

	options := environment.WebhookInstallOptions
	server := webhook.NewServer(webhook.Options{
		Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
	})
	server.Register("/refuse", &webhook.Admission{Handler: admission.HandlerFunc(
		func(_ context.Context, request admission.Request) admission.Response {
			return admission.Denied("refused " + request.Name)
		})})
	go func() {
		if err := server.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "webhook:", err)
		}
	}()
	err = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		return server.StartedChecker()(&http.Request{}) == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the webhook does not start: %w", err)
	}

	lap = time.Now()
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	if err := use(ctx, c); err != nil {
		return nil, err
	}
	done("use")
	return took, nil
}

func use(ctx context.Context, c client.Client) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "suite"}}
	// Fails in the second round if the first has left anything.
	if err := c.Create(ctx, namespace); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	owner := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "suite", "name": "owner"},
		"spec":     map[string]any{"size": int64(3)},
	}}
	if err := c.Create(ctx, owner); err != nil {
		return fmt.Errorf("custom resource: %w", err)
	}
	owned := configMap("owned")
	owned.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "example.com/v1", Kind: "Widget", Name: "owner", UID: owner.GetUID(),
	}}
	if err := c.Create(ctx, owned); err != nil {
		return fmt.Errorf("owned object: %w", err)
	}
	kept := configMap("kept")
	if err := c.Create(ctx, kept); err != nil {
		return fmt.Errorf("object: %w", err)
	}
	refused := configMap("refused")
	refused.Labels = map[string]string{"refuse": "yes"}
	if err := c.Create(ctx, refused); !apierrors.IsForbidden(err) {
		return fmt.Errorf("the webhook was not asked: %v", err)
	}
	if err := c.Delete(ctx, owner); err != nil {
		return err
	}
	if err := gone(ctx, c, owned); err != nil {
		return fmt.Errorf("the owned object stays: %w", err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(kept), kept); err != nil {
		return fmt.Errorf("an object without owner: %w", err)
	}
	var maps corev1.ConfigMapList
	if err := c.List(ctx, &maps, client.InNamespace("suite")); err != nil || len(maps.Items) != 1 {
		return fmt.Errorf("suites count objects: %d, %w", len(maps.Items), err)
	}
	if err := c.Delete(ctx, namespace); err != nil {
		return err
	}
	if err := gone(ctx, c, namespace); err != nil {
		return fmt.Errorf("the namespace stays: %w", err)
	}
	return nil
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "suite", Name: name}}
}

func gone(ctx context.Context, c client.Client, object client.Object) error {
	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// Refuses ConfigMaps with a label.
func refusal() *admissionv1.ValidatingWebhookConfiguration {
	path, none, fail := "/refuse", admissionv1.SideEffectClassNone, admissionv1.Fail
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refusal"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "refusal.example.com",
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             &none,
			FailurePolicy:           &fail,
			ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{Namespace: "default", Name: "refusal", Path: &path},
			},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"refuse": "yes"}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
		}},
	}
}
