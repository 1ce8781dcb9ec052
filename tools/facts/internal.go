package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
)

// The versions whose JSON names the fields of an internal package have, the first that has a struct counts.
var versions = []struct {
	internal  string
	versioned []string
}{
	{"core", []string{"core/v1"}},
	{"admissionregistration", []string{"admissionregistration/v1", "admissionregistration/v1beta1", "admissionregistration/v1alpha1"}},
	{"apiserverinternal", []string{"apiserverinternal/v1alpha1"}},
	{"apps", []string{"apps/v1"}},
	{"autoscaling", []string{"autoscaling/v2", "autoscaling/v1"}},
	{"batch", []string{"batch/v1"}},
	{"certificates", []string{"certificates/v1", "certificates/v1beta1", "certificates/v1alpha1"}},
	{"coordination", []string{"coordination/v1", "coordination/v1beta1", "coordination/v1alpha2"}},
	{"discovery", []string{"discovery/v1"}},
	{"flowcontrol", []string{"flowcontrol/v1"}},
	{"networking", []string{"networking/v1"}},
	{"node", []string{"node/v1"}},
	{"policy", []string{"policy/v1"}},
	{"rbac", []string{"rbac/v1"}},
	{"resource", []string{"resource/v1", "resource/v1beta2", "resource/v1alpha3"}},
	{"scheduling", []string{"scheduling/v1", "scheduling/v1alpha2"}},
	{"storage", []string{"storage/v1"}},
	{"storagemigration", []string{"storagemigration/v1beta1"}},
}

// internalTypes prints a line per struct of kube-apiserver's internal types, which errors show and which have no
// JSON tags: its name, then `GoName jsonName GoType` for each field. An embedded struct is `- - Name`, a field that
// the versioned struct does not have `Name - GoType`. Names of other packages than core have the package in front.
func internalTypes() []string {
	kubernetes, api := moduleDir("k8s.io/kubernetes@"+kubernetes), moduleDir("k8s.io/api@"+api)
	packages, versioned := map[string]goTypes{}, map[string][]goTypes{}
	for _, one := range versions {
		packages[one.internal] = parseTypes(filepath.Join(kubernetes, "pkg/apis", one.internal, "types.go"))
		for _, version := range one.versioned {
			versioned[one.internal] = append(versioned[one.internal], parseTypes(filepath.Join(api, version, "types.go")))
		}
	}
	jsonName := func(internal, structure, field string) string {
		for _, types := range versioned[internal] {
			if name := types.jsonName(structure, field); name != "-" {
				return name
			}
		}
		return "-"
	}
	lines, done := []string{}, map[string]bool{}
	var visit func(internal, name string)
	visit = func(internal, name string) {
		if before, after, ok := strings.Cut(name, "."); ok {
			internal, name = packages[internal].imports[before], after
		}
		fields, ok := packages[internal].structs[name]
		if !ok || done[internal+"."+name] {
			return
		}
		done[internal+"."+name] = true
		line := qualified(internal, name)
		for _, field := range fields {
			if field.name == "-" && field.goType == "metav1.TypeMeta" {
				continue
			}
			line += "\t" + field.name + " " + jsonName(internal, name, field.name) + " " + resolved(packages, internal, field.goType)
		}
		lines = append(lines, line)
		for _, field := range fields {
			visit(internal, element(field.goType))
		}
	}
	for _, one := range versions {
		internal := packages[one.internal]
		for _, name := range internal.order {
			for _, field := range internal.structs[name] {
				if field.goType == "metav1.ObjectMeta" {
					visit(one.internal, name)
				}
			}
		}
	}
	return lines
}

// qualified is the name of a type of an internal package.
func qualified(internal, name string) string {
	if internal == "core" {
		return name
	}
	return internal + "." + name
}

type goField struct{ name, json, goType string }

type goTypes struct {
	structs map[string][]goField
	named   map[string]string
	// Structs in the order of their declaration.
	order []string
	// Names of imported internal packages.
	imports map[string]string
}

func parseTypes(file string) goTypes {
	files := token.NewFileSet()
	types := goTypes{map[string][]goField{}, map[string]string{}, nil, map[string]string{}}
	parsed := must(parser.ParseFile(files, file, nil, 0))
	for _, imported := range parsed.Imports {
		path := strings.Trim(imported.Path.Value, `"`)
		if internal, ok := strings.CutPrefix(path, "k8s.io/kubernetes/pkg/apis/"); ok {
			name := internal
			if imported.Name != nil {
				name = imported.Name.Name
			}
			types.imports[name] = internal
		}
	}
	for _, declaration := range parsed.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			declared, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			structure, ok := declared.Type.(*ast.StructType)
			if !ok {
				types.named[declared.Name.Name] = source(files, declared.Type)
				continue
			}
			fields := []goField{}
			for _, field := range structure.Fields.List {
				json := "-"
				if field.Tag != nil {
					tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
					json = strings.Split(tag, ",")[0]
				}
				if len(field.Names) == 0 {
					fields = append(fields, goField{"-", "-", source(files, field.Type)})
				}
				for _, name := range field.Names {
					fields = append(fields, goField{name.Name, json, source(files, field.Type)})
				}
			}
			types.structs[declared.Name.Name] = fields
			types.order = append(types.order, declared.Name.Name)
		}
	}
	return types
}

func source(files *token.FileSet, expression ast.Expr) string {
	var out bytes.Buffer
	must(0, printer.Fprint(&out, files, expression))
	return out.String()
}

func (types goTypes) jsonName(structure, field string) string {
	for _, known := range types.structs[structure] {
		if known.name == field && known.json != "" {
			return known.json
		}
	}
	return "-"
}

// resolved replaces names like `DNSPolicy` by what they stand for, and those of imported packages by ours.
func resolved(packages map[string]goTypes, internal, goType string) string {
	name := element(goType)
	prefix := strings.TrimSuffix(goType, name)
	if before, after, ok := strings.Cut(name, "."); ok {
		imported, ok := packages[internal].imports[before]
		if !ok {
			return goType
		}
		return prefix + resolved(packages, imported, after)
	}
	types := packages[internal]
	if under, ok := types.named[name]; ok {
		return prefix + resolved(packages, internal, under)
	}
	if _, ok := types.structs[name]; ok {
		return prefix + qualified(internal, name)
	}
	return goType
}

// element is what a pointer, slice or map holds.
func element(goType string) string {
	for {
		below := strings.TrimPrefix(strings.TrimPrefix(goType, "*"), "[]")
		if strings.HasPrefix(below, "map[") {
			below = below[strings.Index(below, "]")+1:]
		}
		if below == goType {
			return goType
		}
		goType = below
	}
}
