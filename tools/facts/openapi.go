package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// openAPIFacts prints a line per definition, and below it, indented, one per field.
func openAPIFacts() []string {
	dir := moduleDir("k8s.io/kubernetes@" + kubernetes)
	v2 := read(filepath.Join(dir, "api/openapi-spec/swagger.json")).object("definitions")
	v3 := object{}
	for _, name := range must(filepath.Glob(filepath.Join(dir, "api/openapi-spec/v3/*.json"))) {
		for name, schema := range read(name).object("components").object("schemas") {
			v3[name] = schema
		}
	}
	enums := enumsOf(dir)
	lines := []string{}
	for _, name := range v2.keys() {
		definition := v2.object(name)
		lines = append(lines, strings.Join(append([]string{name}, definitionFacts(definition)...), "\t"))
		fields := definition.object("properties")
		for _, field := range fields.keys() {
			facts := fieldFacts(fields.object(field), slices.Contains(definition.texts("required"), field))
			if value, ok := v3.object(name).object("properties").object(field)["default"]; ok {
				facts = append(facts, "default="+string(must(json.Marshal(value))))
			}
			if values := enums.of(name, field); values != nil {
				facts = append(facts, "enum="+strings.Join(values, ","))
			}
			lines = append(lines, strings.Join(append([]string{"", field}, facts...), "\t"))
		}
	}
	return lines
}

func definitionFacts(definition object) []string {
	facts := []string{typeName(definition)}
	if kind, ok := definition["x-kubernetes-map-type"]; ok {
		facts = append(facts, fmt.Sprintf("map-type=%s", kind))
	}
	kinds := []string{}
	for _, kind := range definition.objects("x-kubernetes-group-version-kind") {
		kinds = append(kinds, fmt.Sprintf("%s/%s/%s", kind["group"], kind["version"], kind["kind"]))
	}
	if len(kinds) > 0 {
		slices.Sort(kinds)
		facts = append(facts, "kinds="+strings.Join(kinds, ","))
	}
	for _, union := range definition.objects("x-kubernetes-unions") {
		discriminator, _ := union["discriminator"].(string)
		members := union.object("fields-to-discriminateBy").keys()
		facts = append(facts, fmt.Sprintf("union=%s:%s", discriminator, strings.Join(members, ",")))
	}
	return facts
}

func fieldFacts(field object, required bool) []string {
	facts := []string{typeName(field)}
	if required {
		facts = append(facts, "required")
	}
	for _, extension := range []string{"list-type", "list-map-keys", "map-type", "patch-strategy", "patch-merge-key"} {
		switch value := field["x-kubernetes-"+extension].(type) {
		case string:
			facts = append(facts, extension+"="+value)
		case []any:
			facts = append(facts, extension+"="+strings.Join(field.texts("x-kubernetes-"+extension), ","))
		}
	}
	return facts
}

func typeName(schema object) string {
	if reference, ok := schema["$ref"].(string); ok {
		return reference[strings.LastIndex(reference, "/")+1:]
	}
	name, ok := schema["type"].(string)
	if !ok {
		return "any"
	}
	if name == "array" {
		return "[]" + typeName(schema.object("items"))
	}
	if _, ok := schema["additionalProperties"]; ok {
		return "{}" + typeName(schema.object("additionalProperties"))
	}
	if format, ok := schema["format"].(string); ok {
		return name + ":" + format
	}
	return name
}

// The published documents leave out the values of enums, which a server does serve: they are in the
// generated code, by the name of a function and a field.
type enums map[string]map[string][]string

func enumsOf(kubernetesDir string) enums {
	found := enums{}
	for _, dir := range []string{kubernetesDir, moduleDir("k8s.io/apiextensions-apiserver"), moduleDir("k8s.io/kube-aggregator")} {
		text := string(must(os.ReadFile(filepath.Join(dir, "pkg/generated/openapi/zz_generated.openapi.go"))))
		function, field := "", ""
		for line := range strings.SplitSeq(text, "\n") {
			if match := functionLine.FindStringSubmatch(line); match != nil {
				function = match[1]
			} else if match := fieldLine.FindStringSubmatch(line); match != nil {
				field = match[1]
			} else if match := enumLine.FindStringSubmatch(line); match != nil {
				values := []string{}
				must(0, json.Unmarshal([]byte("["+match[1]+"]"), &values))
				if found[function] == nil {
					found[function] = map[string][]string{}
				}
				found[function][field] = values
			}
		}
	}
	return found
}

var (
	functionLine = regexp.MustCompile(`^func schema_(?:k8sio_)?(\w+)\(`)
	fieldLine    = regexp.MustCompile(`^\t{5}"([^"]+)": \{`)
	enumLine     = regexp.MustCompile(`\bEnum:\s*\[\]interface\{\}\{(.*)\},`)
)

// of looks for schema_api_core_v1_Pod given io.k8s.api.core.v1.Pod: for a function that is called by
// the last parts of the name.
func (e enums) of(definition, field string) []string {
	parts := strings.Split(strings.ReplaceAll(definition, "-", ""), ".")
	for from := range len(parts) - 1 {
		if values := e[strings.Join(parts[from:], "_")][field]; values != nil {
			return values
		}
	}
	return nil
}

type object map[string]any

func read(name string) object {
	value := object{}
	must(0, json.Unmarshal(must(os.ReadFile(name)), &value))
	return value
}

func (o object) object(key string) object {
	value, _ := o[key].(map[string]any)
	return value
}

func (o object) objects(key string) []object {
	values := []object{}
	list, _ := o[key].([]any)
	for _, value := range list {
		values = append(values, value.(map[string]any))
	}
	return values
}

func (o object) texts(key string) []string {
	values := []string{}
	list, _ := o[key].([]any)
	for _, value := range list {
		values = append(values, value.(string))
	}
	return values
}

func (o object) keys() []string {
	keys := []string{}
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// moduleDir is where a module is unpacked: one of ours, or one named with its version.
func moduleDir(module string) string {
	if !strings.Contains(module, "@") {
		return strings.TrimSpace(string(must(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output())))
	}
	downloaded := struct{ Dir string }{}
	must(0, json.Unmarshal(must(exec.Command("go", "mod", "download", "-json", module).Output()), &downloaded))
	return downloaded.Dir
}
