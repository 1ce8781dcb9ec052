import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import java.io.ByteArrayInputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** fabric8, the client of most Java operators: objects, patches, watches, informers, definitions. */
public class Check {
    static final String NAMESPACE = "java";
    static final String GROUP = "java.example.com";

    public static void main(String[] args) throws Exception {
        try (KubernetesClient client = new KubernetesClientBuilder().build()) {
            expect("36", client.getKubernetesVersion().getMinor());
            client.namespaces().resource(
                new NamespaceBuilder().withNewMetadata().withName(NAMESPACE).endMetadata().build()).create();
            objects(client);
            watches(client);
            definitions(client);
            client.namespaces().withName(NAMESPACE).delete();
            client.namespaces().withName(NAMESPACE).waitUntilCondition(Objects::isNull, 60, TimeUnit.SECONDS);
        }
        System.out.println("java: good");
        System.exit(0);
    }

    static void objects(KubernetesClient client) {
        var maps = client.configMaps().inNamespace(NAMESPACE);
        ConfigMap map = new ConfigMapBuilder().withNewMetadata().withName("a").endMetadata()
            .addToData("key", "one").build();
        maps.resource(map).create();
        refused(409, () -> maps.resource(map).create());
        maps.withName("a").edit(found -> new ConfigMapBuilder(found).addToData("key", "two").build());
        expect("two", maps.withName("a").get().getData().get("key"));
        maps.withName("a").patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"merged\":\"yes\"}}");
        maps.withName("a").patch(PatchContext.of(PatchType.JSON),
            "[{\"op\":\"remove\",\"path\":\"/data/merged\"}]");
        expect(Map.of("key", "two"), maps.withName("a").get().getData());
        ConfigMap applied = new ConfigMapBuilder().withNewMetadata().withName("a").endMetadata()
            .addToData("applied", "yes").build();
        maps.resource(applied).forceConflicts().serverSideApply();
        expect("yes", maps.withName("a").get().getData().get("applied"));
        ConfigMap invalid = new ConfigMapBuilder().withNewMetadata().withName("Not valid").endMetadata().build();
        refused(422, () -> maps.resource(invalid).create());
        maps.withName("a").delete();
        expect(null, maps.withName("a").get());
    }

    static void watches(KubernetesClient client) throws Exception {
        var secrets = client.secrets().inNamespace(NAMESPACE);
        List<Watcher.Action> seen = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch deleted = new CountDownLatch(1);
        try (var watch = secrets.watch(new Watcher<Secret>() {
            @Override
            public void eventReceived(Action action, Secret secret) {
                seen.add(action);
                if (action == Action.DELETED) {
                    deleted.countDown();
                }
            }

            @Override
            public void onClose(WatcherException cause) {}
        })) {
            Secret secret = new SecretBuilder().withNewMetadata().withName("s").endMetadata()
                .addToStringData("a", "b").build();
            secrets.resource(secret).create();
            secrets.withName("s").edit(found -> new SecretBuilder(found).editMetadata()
                .addToLabels("x", "y").endMetadata().build());
            secrets.withName("s").delete();
            if (!deleted.await(60, TimeUnit.SECONDS)) {
                throw new AssertionError("events are missing: " + seen);
            }
        }
        expect(List.of(Watcher.Action.ADDED, Watcher.Action.MODIFIED, Watcher.Action.DELETED), seen);
        try (var informer = secrets.inform()) {
            secrets.resource(new SecretBuilder().withNewMetadata().withName("i").endMetadata().build()).create();
            secrets.withName("i").waitUntilCondition(found -> informer.getStore().getByKey(NAMESPACE + "/i") != null,
                60, TimeUnit.SECONDS);
        }
    }

    static void definitions(KubernetesClient client) {
        String crd = """
            apiVersion: apiextensions.k8s.io/v1
            kind: CustomResourceDefinition
            metadata: {name: lamps.%s}
            spec:
              group: %s
              scope: Namespaced
              names: {plural: lamps, singular: lamp, kind: Lamp, listKind: LampList}
              versions:
              - name: v1
                served: true
                storage: true
                schema:
                  openAPIV3Schema:
                    type: object
                    properties:
                      spec: {type: object, properties: {color: {type: string, default: red}}}
            """.formatted(GROUP, GROUP);
        var definitions = client.apiextensions().v1().customResourceDefinitions();
        definitions.load(new ByteArrayInputStream(crd.getBytes())).create();
        definitions.withName("lamps." + GROUP).waitUntilCondition(found -> found != null
            && found.getStatus() != null && found.getStatus().getConditions().stream()
                .anyMatch(c -> c.getType().equals("Established") && c.getStatus().equals("True")),
            60, TimeUnit.SECONDS);
        var context = new ResourceDefinitionContext.Builder().withGroup(GROUP).withVersion("v1")
            .withKind("Lamp").withPlural("lamps").withNamespaced(true).build();
        var lamps = client.genericKubernetesResources(context).inNamespace(NAMESPACE);
        GenericKubernetesResource lamp = new GenericKubernetesResource();
        lamp.setApiVersion(GROUP + "/v1");
        lamp.setKind("Lamp");
        lamp.setMetadata(new io.fabric8.kubernetes.api.model.ObjectMetaBuilder().withName("l").build());
        lamp.setAdditionalProperty("spec", Map.of());
        expect("red", lamps.resource(lamp).create().get("spec", "color"));
        expect(1, lamps.list().getItems().size());
        lamps.withName("l").delete();
        definitions.withName("lamps." + GROUP).delete();
    }

    static void refused(int code, Runnable call) {
        try {
            call.run();
        } catch (KubernetesClientException error) {
            expect(code, error.getCode());
            return;
        }
        throw new AssertionError("not refused");
    }

    static void expect(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
