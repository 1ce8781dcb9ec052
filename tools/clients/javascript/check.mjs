// The official JavaScript client: objects, patches, watches, definitions. KUBECONFIG says where the server is.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const namespace = 'javascript';
const group = 'javascript.example.com';
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const extensions = config.makeApiClient(k8s.ApiextensionsV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const patchAs = (type) => k8s.setHeaderOptions('Content-Type', type);

async function refused(code, call) {
  await assert.rejects(call, (error) => error.code === code);
}

// Resolves with the types of the events up to the wanted one.
function follow(path, query, isLast) {
  return new Promise((resolve, reject) => {
    const seen = [];
    const timer = setTimeout(() => reject(new Error(`no such event: ${seen}`)), 60000);
    const watch = new k8s.Watch(config).watch(path, query, (type, object) => {
      seen.push(type);
      if (isLast(type, object)) {
        clearTimeout(timer);
        watch.then((controller) => controller.abort());
        resolve(seen);
      }
    }, () => {});
    watch.catch(reject);
  });
}

const version = await config.makeApiClient(k8s.VersionApi).getCode();
assert.match(version.gitVersion, /^v1\.36/);
await core.createNamespace({ body: { metadata: { name: namespace } } });

// Objects and patches.
const body = { metadata: { name: 'a' }, data: { key: 'one' } };
const created = await core.createNamespacedConfigMap({ namespace, body });
await refused(409, () => core.createNamespacedConfigMap({ namespace, body }));
created.data.key = 'two';
await core.replaceNamespacedConfigMap({ name: 'a', namespace, body: created });
await refused(409, () => core.replaceNamespacedConfigMap({ name: 'a', namespace, body: created }));
const merged = await core.patchNamespacedConfigMap(
  { name: 'a', namespace, body: { data: { merged: 'yes' } } }, patchAs(k8s.PatchStrategy.MergePatch));
assert.deepEqual(merged.data, { key: 'two', merged: 'yes' });
const removed = await core.patchNamespacedConfigMap(
  { name: 'a', namespace, body: [{ op: 'remove', path: '/data/merged' }] }, patchAs(k8s.PatchStrategy.JsonPatch));
assert.deepEqual(removed.data, { key: 'two' });
const applied = await core.patchNamespacedConfigMap(
  {
    name: 'a', namespace, fieldManager: 'check', force: true,
    body: { apiVersion: 'v1', kind: 'ConfigMap', data: { applied: 'yes' } },
  }, patchAs(k8s.PatchStrategy.ServerSideApply));
assert.equal(applied.data.applied, 'yes');
await refused(422, () => core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'Not valid' } } }));

// A watch.
const path = `/api/v1/namespaces/${namespace}/secrets`;
const list = await core.listNamespacedSecret({ namespace });
const events = follow(path, { resourceVersion: list.metadata.resourceVersion }, (type) => type === 'DELETED');
await core.createNamespacedSecret({ namespace, body: { metadata: { name: 's' }, stringData: { a: 'b' } } });
await core.patchNamespacedSecret(
  { name: 's', namespace, body: { metadata: { labels: { x: 'y' } } } }, patchAs(k8s.PatchStrategy.MergePatch));
await core.deleteNamespacedSecret({ name: 's', namespace });
assert.deepEqual(await events, ['ADDED', 'MODIFIED', 'DELETED']);

// A definition and its objects.
const schema = {
  type: 'object',
  properties: { spec: { type: 'object', properties: { color: { type: 'string', _default: 'red' } } } },
};
const crd = `lamps.${group}`;
const served = follow(
  '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', { fieldSelector: `metadata.name=${crd}` },
  (_, object) => object.status?.conditions?.some((c) => c.type === 'Established' && c.status === 'True'));
await extensions.createCustomResourceDefinition({
  body: {
    metadata: { name: crd },
    spec: {
      group, scope: 'Namespaced',
      names: { plural: 'lamps', singular: 'lamp', kind: 'Lamp', listKind: 'LampList' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: schema } }],
    },
  },
});
await served;
const place = { group, version: 'v1', namespace, plural: 'lamps' };
const lamp = { apiVersion: `${group}/v1`, kind: 'Lamp', metadata: { name: 'l' }, spec: {} };
assert.equal((await custom.createNamespacedCustomObject({ ...place, body: lamp })).spec.color, 'red');
assert.equal((await custom.listNamespacedCustomObject(place)).items.length, 1);
await custom.deleteNamespacedCustomObject({ ...place, name: 'l' });
await extensions.deleteCustomResourceDefinition({ name: crd });

const gone = follow('/api/v1/namespaces', { fieldSelector: `metadata.name=${namespace}` }, (type) => type === 'DELETED');
await core.deleteNamespace({ name: namespace });
await gone;
console.log('javascript: good');
process.exit(0);
