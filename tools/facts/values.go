package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var groups = []func(*runtime.Scheme) error{
	admissionv1.AddToScheme, admissionv1beta1.AddToScheme,
	admissionregistrationv1.AddToScheme, admissionregistrationv1alpha1.AddToScheme,
	admissionregistrationv1beta1.AddToScheme,
	apidiscoveryv2.AddToScheme, apidiscoveryv2beta1.AddToScheme,
	apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme,
	apiregistrationv1.AddToScheme, apiserverinternalv1alpha1.AddToScheme, appsv1.AddToScheme,
	authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme,
	certificatesv1.AddToScheme, certificatesv1alpha1.AddToScheme, certificatesv1beta1.AddToScheme,
	coordinationv1.AddToScheme, coordinationv1alpha2.AddToScheme, coordinationv1beta1.AddToScheme,
	corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, flowcontrolv1.AddToScheme,
	networkingv1.AddToScheme, networkingv1beta1.AddToScheme, nodev1.AddToScheme,
	policyv1.AddToScheme, rbacv1.AddToScheme,
	resourcev1.AddToScheme, resourcev1alpha3.AddToScheme, resourcev1beta1.AddToScheme,
	resourcev1beta2.AddToScheme, schedulingv1.AddToScheme, schedulingv1alpha2.AddToScheme,
	storagev1.AddToScheme, storagev1beta1.AddToScheme, storagemigrationv1beta1.AddToScheme,
	metav1.AddMetaToScheme,
}

// values prints each type that a kind consists of: its name, JSON and protobuf in hexadecimal digits,
// or `-` for a type that has no protobuf.
func values(filled bool) []string {
	scheme := runtime.NewScheme()
	for _, add := range groups {
		must(0, add(scheme))
	}
	types := map[string]reflect.Type{}
	for _, known := range scheme.AllKnownTypes() {
		collect(known, types)
	}
	collect(reflect.TypeFor[metav1.Condition](), types)
	collect(reflect.TypeFor[version.Info](), types)
	lines := []string{}
	for name, of := range types {
		value := reflect.New(of)
		if filled {
			fill(value.Elem())
		}
		text := must(json.Marshal(value.Interface()))
		bytes := "-"
		if message, ok := value.Interface().(interface{ Marshal() ([]byte, error) }); ok {
			bytes = hex.EncodeToString(must(message.Marshal()))
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s", name, text, bytes))
	}
	sort.Strings(lines)
	return lines
}

// collect finds the structs that a type consists of. What encodes itself is one value, not a struct.
func collect(of reflect.Type, types map[string]reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(of.Elem(), types)
	case reflect.Struct:
		name := definition(of)
		// The last two are Go's own view of a watch, which never reaches a client.
		if types[name] != nil || special(reflect.New(of).Elem()) || name == definition(reflect.TypeFor[metav1.TypeMeta]()) ||
			name == definition(reflect.TypeFor[metav1.InternalEvent]()) || strings.Contains(name, "watch.Event") {
			return
		}
		types[name] = of
		for i := range of.NumField() {
			if of.Field(i).Tag.Get("json") != "-" {
				collect(of.Field(i).Type, types)
			}
		}
	}
}

// definition is the name of a type in OpenAPI: io.k8s.api.core.v1.Pod.
func definition(of reflect.Type) string {
	host, path, _ := strings.Cut(of.PkgPath(), "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(path, "/", ".") + "." + of.Name()
}

// fill sets each field: texts to the name of the field, numbers to its tag, lists and maps to one item.
// Structs inside stay empty; they have lines of their own.
func fill(object reflect.Value) {
	for i := range object.NumField() {
		field := object.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous && name == "" && field.Type == reflect.TypeFor[metav1.TypeMeta]():
		case field.Anonymous && name == "":
			fill(object.Field(i))
		default:
			set(object.Field(i), name, tag(field))
		}
	}
}

func tag(field reflect.StructField) int64 {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 1
	}
	return must(strconv.ParseInt(parts[1], 10, 64))
}

func set(value reflect.Value, name string, tag int64) {
	if special(value) {
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		set(value.Elem(), name, tag)
	case reflect.String:
		value.SetString(name)
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		value.SetInt(tag)
	case reflect.Float64:
		value.SetFloat(float64(tag) + 0.5)
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			value.SetBytes([]byte(name))
			return
		}
		item := reflect.New(value.Type().Elem()).Elem()
		set(item, name, tag)
		value.Set(reflect.Append(value, item))
	case reflect.Map:
		item := reflect.New(value.Type().Elem()).Elem()
		set(item, name, tag)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(reflect.ValueOf("k").Convert(value.Type().Key()), item)
	case reflect.Interface:
		value.Set(reflect.ValueOf(name))
	case reflect.Struct:
	default:
		must(0, fmt.Errorf("%s: what is a %s?", name, value.Type()))
	}
}

// special sets what encodes itself, and says whether it did.
func special(value reflect.Value) bool {
	at := time.Date(2001, 2, 3, 4, 5, 6, 7000, time.UTC)
	raw := []byte(`{"a":1}`)
	for _, to := range []any{
		metav1.NewTime(at.Truncate(time.Second)), metav1.NewMicroTime(at), metav1.Duration{Duration: time.Minute},
		resource.MustParse("100m"), intstr.FromInt32(7), runtime.RawExtension{Raw: raw}, *metav1.NewFieldsV1(string(raw)),
		apiextensionsv1.JSON{Raw: raw}, apiextensionsv1beta1.JSON{Raw: raw},
		apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{}},
		apiextensionsv1beta1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1beta1.JSONSchemaProps{}},
		apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}, apiextensionsv1beta1.JSONSchemaPropsOrBool{Allows: true},
		apiextensionsv1.JSONSchemaPropsOrStringArray{Property: []string{"a"}},
		apiextensionsv1beta1.JSONSchemaPropsOrStringArray{Property: []string{"a"}},
	} {
		if reflect.TypeOf(to) == value.Type() {
			value.Set(reflect.ValueOf(to))
			return true
		}
	}
	return false
}
