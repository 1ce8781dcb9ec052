"""Sends odd requests to kube-apiserver and to Pintle, and prints where code, headers or body differ.

usage: surface.py MINUTES [WORD ...]   (servers: REAL_PORT, OUR_PORT, token TOKEN, as for hunt.py)

A request is a method, a path of any resource or of none, up to three parameters of the query, headers and a body, each drawn from a list
of usual and unusual ones. All headers count but for those that name the moment or the connection. Writes are dry runs, or go to a
namespace of the hunt's own, whose objects are made anew after a difference. What differs twice is printed, once for each shape. SEED
repeats a run. With WORDs only paths that have one of them are asked for.
"""
import collections, gzip, http.client, json, os, random, re, sys, time
import hunt
from hunt import ours, real, short
from sequences import TIME, UID, differences_of

SPACE = 'surface'
CORE = f'/api/v1/namespaces/{SPACE}'
OBJECTS = {
    f'{CORE}/configmaps': [{'metadata': {'name': name, 'labels': {'x': name}}, 'data': {'k': 'v'}} for name in 'abc'],
    f'{CORE}/secrets': [{'metadata': {'name': 'a'}, 'data': {'k': 'dg=='}}],
    f'{CORE}/serviceaccounts': [{'metadata': {'name': 'a'}}],
    f'{CORE}/pods': [{'metadata': {'name': 'a', 'labels': {'x': 'a'}}, 'spec': {'containers': [{'name': 'c', 'image': 'i'}]}}],
    f'{CORE}/services': [{'metadata': {'name': 'a'}, 'spec': {'ports': [{'port': 80}], 'selector': {'x': 'a'}}}],
    f'{CORE}/events': [{'metadata': {'name': 'a', 'namespace': SPACE}, 'involvedObject': {'namespace': SPACE, 'kind': 'Pod', 'name': 'a'}, 'reason': 'r', 'type': 'Normal'}],
    f'/apis/apps/v1/namespaces/{SPACE}/deployments': [{'metadata': {'name': 'a'}, 'spec': {
        'selector': {'matchLabels': {'x': 'a'}}, 'template': {'metadata': {'labels': {'x': 'a'}}, 'spec': {'containers': [{'name': 'c', 'image': 'i'}]}}}}],
    f'/apis/batch/v1/namespaces/{SPACE}/jobs': [{'metadata': {'name': 'a'}, 'spec': {
        'suspend': True, 'template': {'spec': {'restartPolicy': 'Never', 'containers': [{'name': 'c', 'image': 'i'}]}}}}],
    f'/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases': [{'metadata': {'name': 'a'}}],
    f'/apis/autoscaling/v2/namespaces/{SPACE}/horizontalpodautoscalers': [{'metadata': {'name': 'a'}, 'spec': {
        'maxReplicas': 2, 'scaleTargetRef': {'kind': 'Deployment', 'name': 'a', 'apiVersion': 'apps/v1'}}}],
    f'/apis/surface.example.com/v1/namespaces/{SPACE}/gulls': [{'apiVersion': 'surface.example.com/v1', 'kind': 'Gull', 'metadata': {'name': name}, 'spec': {'n': 1}} for name in 'ab'],
}
DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
DEFINITION = {
    'metadata': {'name': 'gulls.surface.example.com'},
    'spec': {'group': 'surface.example.com', 'scope': 'Namespaced', 'names': {'plural': 'gulls', 'kind': 'Gull', 'shortNames': ['gu']}, 'versions': [{
        'name': 'v1', 'served': True, 'storage': True, 'subresources': {'status': {}, 'scale': {'specReplicasPath': '.spec.n', 'statusReplicasPath': '.status.n'}},
        'additionalPrinterColumns': [{'name': 'N', 'type': 'integer', 'jsonPath': '.spec.n'}],
        'schema': {'openAPIV3Schema': {'type': 'object', 'properties': {
            'spec': {'type': 'object', 'properties': {'n': {'type': 'integer'}}}, 'status': {'type': 'object', 'properties': {'n': {'type': 'integer'}}}}}}},
        {'name': 'v1beta1', 'served': True, 'storage': False, 'deprecated': True, 'schema': {'openAPIV3Schema': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}}}]},
}
PLAIN = (
    '/api', '/api/', '/apis', '/apis/', '/api/v1', '/api/v1/', '/apis/apps', '/apis/apps/', '/apis/apps/v1', '/apis/apps/v1/', '/apis/nope.io', '/apis/nope.io/v1',
    '/apis/surface.example.com', '/apis/surface.example.com/v1', '/apis/apiregistration.k8s.io', '/apis/apiregistration.k8s.io/v1', '/apis/apiextensions.k8s.io/v1',
    '/healthz', '/livez', '/readyz', '/healthz/etcd', '/livez/ping', '/readyz/nope', '/metrics', '/metrics/slis', '/metrics/nope', '/logs', '/logs/', '/nope',
    '/openapi', '/openapi/v2', '/openapi/v3', '/openapi/v3/', '/openapi/v3/api/v1', '/openapi/v3/apis/apps/v1', '/openapi/v3/apis/nope/v1', '/openapi/v3/version', '/openapi/v4',
    '/.well-known/openid-configuration', '/openid/v1/jwks', '/swagger.json', '/swaggerapi', '/swagger-2.0.0.pb-v1', '/ui', '/robots.txt', '/favicon.ico', '/debug/flags/v',
    '/debug/api_priority_and_fairness/dump_queues', '/apis/apps/v1/namespaces', '/api/v1/watch', '/api/v1/watch/', '/api/v1/proxy', '/api/v1/watch/pods/x/y',
    '/api/v1/namespaces/', '/api/v1/namespaces/default/', '/api//v1', '//', '/api/v1/%2e%2e', '/api/v1/../v1', '/api/v1/./pods', '/apis/apps/v1/deployments/a', '/flagz', '/configz',
    '/api/v1/namespaces/%20', '/api/v1/namespaces/a%2fb', '/api/v1/namespaces/a%00b', '/api/v1/nodes/a%2Fproxy', '/api/v1/namespaces/surface/pods/a/log', '/API/v1', '/Healthz', '/*',
)
METHODS = ('GET',) * 10 + ('HEAD', 'OPTIONS', 'TRACE', 'POST', 'POST', 'PUT', 'PUT', 'PATCH', 'PATCH', 'PATCH', 'DELETE', 'DELETE', 'CONNECTED', 'get', 'PROPFIND')
ACCEPTS = (None,) * 6 + (
    'application/json', '*/*', '', 'application/yaml', 'application/vnd.kubernetes.protobuf', 'application/cbor', 'text/html', 'text/plain', 'text/*', 'application/*', 'application/json;q=0.5,application/yaml',
    'application/json;q=0', 'application/yaml;q=0.2,*/*;q=0.1', 'garbage', 'a/b/c', 'application/json; charset=utf-8', 'application/json;pretty=1', 'application/json;as=Table;v=v1;g=meta.k8s.io',
    'application/json;as=Table;v=v1beta1;g=meta.k8s.io', 'application/json;as=Table;v=v2;g=meta.k8s.io', 'application/json;as=Table;g=meta.k8s.io', 'application/json;as=Table;v=v1', 'application/yaml;as=Table;v=v1;g=meta.k8s.io',
    'application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io', 'application/cbor;as=Table;v=v1;g=meta.k8s.io', 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json', 'text/html;as=Table;v=v1;g=meta.k8s.io,*/*',
    'application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io', 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io', 'application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io',
    'application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io', 'application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io', 'application/json;as=Pod;v=v1;g=', 'application/json;as=;v=;g=',
    'application/json;as=Status;v=v1;g=meta.k8s.io', 'application/json;stream=watch', 'application/vnd.kubernetes.protobuf;stream=watch', 'application/yaml;stream=watch', 'application/json;stream=x', 'application/json-seq',
    'application/cbor-seq', 'application/json;profile=nopeer', 'application/json;unknown=1', 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList', 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json',
    'application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList', 'application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList', 'application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList',
    'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer', 'application/com.github.proto-openapi.spec.v2@v1.0+protobuf', 'application/com.github.proto-openapi.spec.v3.v1.0+protobuf', 'application/com.github.proto-openapi.spec.v3@v1.0+protobuf',
    'application/openmetrics-text', 'application/openmetrics-text;version=1.0.0', 'text/plain;version=0.0.4', 'application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited',
)
CONTENTS = (None,) + ('application/json',) * 6 + (
    '', 'application/yaml', 'text/plain', 'application/x-www-form-urlencoded', 'application/json; charset=utf-8', 'application/json;as=Table', 'application/vnd.kubernetes.protobuf', 'application/cbor', 'garbage', 'application/xml',
    'application/merge-patch+json', 'application/json-patch+json', 'application/strategic-merge-patch+json', 'application/apply-patch+yaml', 'application/apply-patch+cbor', 'application/apply-patch+json', 'application/merge-patch+json; charset=utf-8',
    'APPLICATION/JSON', 'application/merge-patch', 'application/*', '*/*',
)
PATCHES = (
    'application/merge-patch+json', 'application/json-patch+json', 'application/strategic-merge-patch+json', 'application/apply-patch+yaml', 'application/apply-patch+cbor', 'application/merge-patch+json;x=1', 'application/json', None,
)
QUERIES = (
    'limit=-1', 'limit=0', 'limit=1', 'limit=x', 'limit=9999999999999999999', 'limit=1&limit=2', 'limit=', 'continue=x', 'continue=', 'continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0', 'continue=e30',
    'resourceVersion=0', 'resourceVersion=1', 'resourceVersion=x', 'resourceVersion=-1', 'resourceVersion=99999999999', 'resourceVersion=', 'resourceVersionMatch=Exact', 'resourceVersionMatch=NotOlderThan', 'resourceVersionMatch=x', 'resourceVersionMatch=',
    'timeoutSeconds=1', 'timeoutSeconds=x', 'timeoutSeconds=-1', 'timeoutSeconds=0', 'timeout=1s', 'timeout=x', 'timeout=0', 'timeout=-1s', 'timeout=2h', 'timeout=1', 'timeout=', 'watch=maybe', 'watch=false', 'watch=0', 'watch=F', 'watch=no', 'Watch=true',
    'sendInitialEvents=true', 'sendInitialEvents=x', 'sendInitialEvents=false', 'allowWatchBookmarks=true', 'allowWatchBookmarks=x', 'pretty=true', 'pretty=false', 'pretty=1', 'pretty=0', 'pretty', 'pretty=x', 'pretty=',
    'labelSelector=x', 'labelSelector=x%3Da', 'labelSelector=x%20in%20(a,b)', 'labelSelector=(', 'labelSelector=a%20b', 'labelSelector=!x', 'labelSelector=x%3D%3Db', 'labelSelector=x!%3Da', 'labelSelector=-', 'labelSelector=x%3Da,', 'labelSelector=,',
    'labelSelector=x%3E1', 'labelSelector=x%20notin%20()', 'labelSelector=x%20in%20(', 'labelSelector=%00', 'labelSelector=a/b/c', 'labelSelector=' + 'a' * 70, 'labelSelector=x%3D-', 'labelSelector=in%20in%20(in)',
    'fieldSelector=metadata.name%3Da', 'fieldSelector=metadata.namespace%3Dsurface', 'fieldSelector=nope%3Da', 'fieldSelector=metadata.name', 'fieldSelector=metadata.name!%3Da', 'fieldSelector=metadata.name%3D%3Da', 'fieldSelector=%3D',
    'fieldSelector=status.phase%3DPending', 'fieldSelector=spec.nodeName%3D', 'fieldSelector=metadata.name%3Da,metadata.name%3Db', 'fieldSelector=metadata.name%3Da%5C', 'fieldSelector=,', 'fieldSelector=type%3DNormal', 'fieldSelector=metadata.labels%3Dx',
    'includeObject=Object', 'includeObject=None', 'includeObject=Metadata', 'includeObject=x', 'shardSelector=x', 'dryRun=All', 'dryRun=', 'dryRun=x', 'dryRun=All&dryRun=All', 'dryRun=All&dryRun=x', 'dryRun=all', 'fieldManager=' + 'm' * 128, 'fieldManager=' + 'm' * 129,
    'fieldManager=', 'fieldManager=%00', 'fieldManager=a%0Ab', 'fieldManager=%C3%A9', 'fieldManager=m', 'fieldValidation=Strict', 'fieldValidation=Warn', 'fieldValidation=Ignore', 'fieldValidation=x', 'fieldValidation=', 'force=true', 'force=x', 'force=false', 'force=',
    'gracePeriodSeconds=0', 'gracePeriodSeconds=x', 'gracePeriodSeconds=-1', 'gracePeriodSeconds=30', 'propagationPolicy=Orphan', 'propagationPolicy=Foreground', 'propagationPolicy=x', 'propagationPolicy=', 'orphanDependents=true', 'orphanDependents=x',
    'orphanDependents=false', 'ignoreStoreReadErrorWithClusterBreakingPotential=true', 'preconditions=x', 'uid=x', 'verbose', 'verbose=true', 'exclude=etcd', 'exclude=nope', 'exclude=ping&exclude=log', 'hash=x', 'unknown=1', '=', '&', 'a=b=c', '%20=1',
    'kind=Pod', 'apiVersion=v1', 'allowUnsafe=x', 'export=true', 'exact=true', 'name=x', 'follow=x', 'tailLines=-1', 'container=nope', 'previous=x',
)
HEADERS = (
    {},) * 12 + (
    {'Accept-Encoding': 'gzip'}, {'Accept-Encoding': 'gzip;q=0'}, {'Accept-Encoding': 'deflate'}, {'If-None-Match': '"x"'}, {'If-None-Match': '*'}, {'If-Modified-Since': 'Tue, 01 Jan 2036 00:00:00 GMT'}, {'Range': 'bytes=0-3'},
    {'Origin': 'http://x.example'}, {'Cache-Control': 'no-cache'}, {'Impersonate-User': 'somebody'}, {'Impersonate-Group': 'g'}, {'Impersonate-User': 'somebody', 'Impersonate-Group': 'system:masters'}, {'Impersonate-Uid': 'x'},
    {'Impersonate-User': 'a', 'Impersonate-Extra-x': 'y'}, {'Authorization': 'Bearer nope'}, {'Authorization': 'Basic eDp5'}, {'Authorization': ''}, {'Authorization': 'Bearer low'}, {'Authorization': 'Bearer'}, {'Authorization': 'Bearer low,tok'}, {'Audit-Id': 'mine'},
    {'X-HTTP-Method-Override': 'DELETE'}, {'X-Remote-User': 'x'}, {'Upgrade': 'websocket', 'Connection': 'Upgrade'}, {'Upgrade': 'SPDY/3.1', 'Connection': 'Upgrade'}, {'Connection': 'close'}, {'Content-Encoding': 'gzip'},
    {'Access-Control-Request-Method': 'GET', 'Origin': 'http://x.example'}, {'User-Agent': ''}, {'User-Agent': 'kubectl/v1.30 (x) y'}, {'Host': 'x.example'},
)
BODIES = (
    None, b'', b'{}', b'null', b'[]', b'x', b'{', b'1', b'""', b'{"metadata":{"name":"a"}}', b'{"metadata":{"name":"zz"}}', b'{"metadata":{"name":"Bad Name"}}', b'{"metadata":{"generateName":"g-"}}', b'{"metadata":{}}', b'{"metadata":null}', b'{"metadata":[]}',
    b'{"kind":"DeleteOptions","apiVersion":"v1"}', b'{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}', b'{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":-1,"dryRun":["All"]}', b'{"kind":"Nope","apiVersion":"v1"}', b'{"kind":"Pod","apiVersion":"v2"}',
    b'{"apiVersion":"v1"}', b'{"kind":"ConfigMap"}', b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"w"}}', b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"other"}}', b'{"data":{"k":1}}', b'{"data":"x"}', b'{"unknown":1}',
    b'{"metadata":{"name":"a"},"metadata":{"name":"b"}}', b'{"metadata":{"labels":{"y":"z"}}}', b'{"metadata":{"labels":{"Bad Label":"z"}}}', b'{"metadata":{"resourceVersion":"1"}}', b'{"metadata":{"uid":"x"}}', b'[{"op":"add","path":"/metadata/labels","value":{"y":"z"}}]',
    b'[{"op":"remove","path":"/nope"}]', b'[{"op":"nope","path":"/x"}]', b'[{"op":"test","path":"/metadata/name","value":"x"}]', b'{"op":"add"}', b'a: b', b'metadata:\n  name: a\n', b'a: [', b'\xff\xfe', b'\x00', b'k8s\x00', b'k8s\x00\x0a\x00', b'\xa0', b'\xd9\xd9\xf7\xa0',
    b'{"spec":{"replicas":3}}', b'{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"surface"},"spec":{"replicas":2}}', b'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}', b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}',
    b'{"metadata":{"name":"a"}} trailing', b'{"metadata":{"name":"a"}}{"metadata":{"name":"b"}}', b'\xef\xbb\xbf{}', b'{"metadata":{"name":"\\ud800"}}', b'{"metadata":{"name":1}}', b'{"metadata":{"creationTimestamp":"x"}}', b'{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z","name":"a"}}',
    b'{"kind":"List","apiVersion":"v1","items":[]}', b'{"kind":"Status","apiVersion":"v1"}', b'{"kind":"configmap","apiVersion":"v1"}', b'{"kind":1}', b'{"apiVersion":1}', b'{"apiVersion":"a/b/c","kind":"ConfigMap"}', b'{"apiVersion":"","kind":""}', b'[' * 11000, b'{"a":' * 2000,
)
# They name the moment, the length of what is masked, or how it is framed.
IGNORED = ('date', 'audit-id', 'content-length', 'last-modified', 'expires', 'transfer-encoding', 'accept-ranges')


class Answer:
    """What a server says, without what differs from server to server."""

    def __init__(self, server, method, path, headers, body):
        for attempt in (0, 1):
            try:
                connection = server.c or http.client.HTTPSConnection(*server.addr, context=hunt.CTX, timeout=20)
                server.c = connection
                # As it is: http.client would look at it.
                connection.putrequest(method, path, skip_host='Host' in headers, skip_accept_encoding=True)
                if body is not None:
                    connection.putheader('Content-Length', str(len(body)))
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                data = answer.read() if answer.status != 101 else b''
                if answer.status == 101 or (answer.getheader('Connection') or '').lower() == 'close':
                    connection.close()
                    server.c = None
                break
            except (http.client.HTTPException, OSError) as error:
                if server.c:
                    server.c.close()
                server.c = None
                if attempt:
                    self.code, self.headers, self.body, self.raw = 599, [], type(error).__name__, b''
                    return
        self.code, self.raw = answer.status, data
        self.headers = sorted(f'{name.lower()}: {server.masked_uid(value)}' for name, value in answer.getheaders() if name.lower() not in IGNORED)
        self.headers = [re.sub(r'^(etag: )"[0-9A-F]+"$', r'\1HASH', line) for line in self.headers]
        self.headers = [re.sub(r'^(process-start-time-unix: )\d+', r'\1NOW', line) for line in self.headers]
        if 'Upgrade' in headers:
            # Pintle keeps no connection on which an upgrade was asked for.
            self.headers = [line for line in self.headers if not line.startswith('connection')]
        if answer.getheader('Content-Encoding') == 'gzip' and data:
            data = gzip.decompress(data)
        if '/metrics' in path and self.code == 200:
            data = b'METRICS'
        elif '/openapi/' in path and self.code == 200:
            data = b'DOCUMENT'
        self.body = masked(server, data)

    def differences(self, other):
        found = []
        same_uids((self, other))
        if self.code != other.code:
            found.append(f'code {self.code} | {other.code}: {short(self.body)} | {short(other.body)}')
        elif self.body != other.body:
            found += differences_of(parsed(self.body), parsed(other.body))
        if self.headers != other.headers:
            found += [f'header real: {line}' for line in self.headers if line not in other.headers]
            found += [f'header ours: {line}' for line in other.headers if line not in self.headers]
        return found


def masked(server, data):
    if b'\0' in data or data[:1] in (b'\xa0', b'\xd9'):
        data = re.sub(rb'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}', b'UID', data)
        # Times and versions are numbers there: only the texts are compared.
        return re.sub(r'\d+', 'N', ' '.join(found.decode() for found in re.findall(rb'[ -~]{4,}', data)))
    text = data.decode('utf8', 'replace')
    text = re.sub(r'("?continue"?: ?)"[^"]+"', r'\1"TOKEN"', text)
    text = UID.sub('UID', text)
    text = TIME.sub('NOW', text)
    text = re.sub(r'(resourceVersion\\*"?: ?\\*"?)\d+', r'\1V', text)
    text = re.sub(r'(in record |current: |too old resource version: \d+ |Too large resource version: \d+, current: )\(?\d+\)?', r'\1V', text)
    text = re.sub(r'10\.0\.0\.\d+', 'IP', text)
    text = re.sub(rf'[0-9.]+:(?:{hunt.REAL[1]}|{hunt.OURS[1]})', 'ADDRESS', text)
    text = re.sub(r'("description": ?")(?:[^"\\]|\\.)*"', r'\1"', text)
    text = re.sub(r'"(?:\d+[smhd])+"', '"AGE"', text)
    return re.sub(r'(is "?|: )g-[a-z0-9]{5}|"g-[a-z0-9]{5}"', r'\1GENERATED', text)


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def name_uids(server):
    """FlowSchemas and levels are named by uid in headers: by name, so that they can be compared."""
    names = {}
    for resource in ('flowschemas', 'prioritylevelconfigurations'):
        answer = server.call('GET', f'/apis/flowcontrol.apiserver.k8s.io/v1/{resource}')[1]
        names.update({one['metadata']['uid']: one['metadata']['name'] for one in answer.get('items', [])})
    server.masked_uid = lambda text: UID.sub(lambda found: names.get(found[0], 'UID'), text)


def same_uids(answers):
    """Other hunts may have made levels anew meanwhile: then only that they are named is compared."""
    for answer in answers:
        if any(line.startswith('x-kubernetes-pf-') and line.endswith((': ', ': UID')) for line in answer.headers):
            for other in answers:
                other.headers = [re.sub(r'^(x-kubernetes-pf-[a-z-]+: ).*', r'\1NAME', line) for line in other.headers]


def seed(server):
    """The objects of the hunt's own namespace, as they are at its beginning."""
    if server.call('GET', f'{DEFINITIONS}/{DEFINITION["metadata"]["name"]}')[0] == 404:
        server.call('POST', DEFINITIONS, DEFINITION)
    server.call('POST', '/api/v1/namespaces', {'metadata': {'name': SPACE}})
    for path, objects in OBJECTS.items():
        for _ in range(100):
            code, answer, _ = server.call('GET', path)
            if code == 200:
                break
            time.sleep(.1)
        for held in answer.get('items', []):
            at = f'{path}/{held["metadata"]["name"]}'
            server.call('DELETE', f'{at}?gracePeriodSeconds=0')
            if server.call('GET', at)[0] == 200:
                server.call('PATCH', at, {'metadata': {'finalizers': None}}, 'application/merge-patch+json')
        for given in objects:
            code, answer, _ = server.call('POST', path, given)
            if code != 201:
                print('!! seed', path, code, answer.get('message'))


def resources():
    """(path of the collection, namespaced, name, subresources) of all that is served by both."""
    found, roots = [], ['/api/v1']
    roots += [f'/apis/{version["groupVersion"]}' for group in real.call('GET', '/apis')[1]['groups'] for version in group['versions']]
    for root in roots:
        listed = [server.call('GET', root)[1].get('resources', []) for server in (real, ours)]
        if listed[0] != listed[1]:
            print('## discovery of', root, *differences_of(*listed)[:5])
        for one in listed[0]:
            if '/' not in one['name']:
                subs = [other['name'].split('/', 1)[1] for other in listed[0] if other['name'].startswith(one['name'] + '/')]
                found.append((root, one['namespaced'], one['name'], subs))
    return found


def draw_path(choose, served):
    if choose.random() < .25:
        return choose.choice(PLAIN)
    root, namespaced, name, subs = choose.choice(served) if choose.random() < .6 else choose.choice([one for one in served if one[2] in SEEDED])
    path = root
    odd = choose.random()
    if odd < .04:
        path += '/watch'
    if namespaced and odd < .9:
        path += '/namespaces/' + (SPACE if choose.random() < .9 else choose.choice(('missing', 'default', 'Bad', '-')))
    elif not namespaced and odd > .97:
        path += f'/namespaces/{SPACE}'
    path += '/' + name
    if choose.random() < .6:
        path += '/' + (choose.choice('aaaab') if choose.random() < .85 else choose.choice(('missing', 'Bad', 'system:x', '%20', '%2e', 'a%2Fb', 'a%25', 'a.', '~', 'a b'.replace(' ', '+'), 'ü'.encode().hex())))
        if choose.random() < .35:
            path += '/' + (choose.choice(subs) if subs and choose.random() < .8 else choose.choice(('status', 'scale', 'nope', 'log', 'exec', 'proxy', 'binding', 'eviction', 'token')))
            if choose.random() < .1:
                path += choose.choice(('/x', '/', '/x/y'))
    ending = choose.random()
    return path + '/' if ending < .03 else path + '//' if ending < .04 else '/' + path if ending < .05 else path


SEEDED = {path.rsplit('/', 1)[1] for path in OBJECTS}


def draw(choose, served):
    """(method, path and query, headers, body)"""
    method, path = choose.choice(METHODS), draw_path(choose, served)
    query = [choose.choice(QUERIES) for _ in range(choose.choice((0, 0, 1, 1, 1, 2, 3)))]
    watches = re.search(r'/watch(/|$)', path) or any(one.lower() in ('watch=true', 'watch=maybe', 'pretty') for one in query)
    if method == 'GET' and choose.random() < .03:
        query.append('watch=1')
        watches = True
    if watches or re.search('/(log|exec|attach|portforward|proxy)$', path):
        query.append('timeoutSeconds=1')
    headers = {'Authorization': 'Bearer ' + hunt.TOKEN, 'User-Agent': 'hunt'}
    accept, body, content = choose.choice(ACCEPTS), None, None
    if method in ('POST', 'PUT', 'PATCH', 'DELETE', 'CONNECTED'):
        body = choose.choice(BODIES) if method != 'DELETE' or choose.random() < .4 else None
        content = choose.choice(PATCHES if method == 'PATCH' and choose.random() < .8 else CONTENTS)
        own = f'/namespaces/{SPACE}/' in path and choose.random() < .5
        if not own or method in ('DELETE', 'CONNECTED') and f'/namespaces/{SPACE}/' not in path:
            query.append('dryRun=All')
        if method == 'DELETE' and f'/namespaces/{SPACE}/' not in path:
            # A body takes the place of the query.
            body = None
        if method == 'DELETE' and body:
            query = [one for one in query if 'dryRun' not in one]
    if accept is not None:
        headers['Accept'] = accept
    if content is not None:
        headers['Content-Type'] = content
    headers.update(choose.choice(HEADERS))
    return method, path + ('?' + '&'.join(query) if query else ''), headers, body


def main():
    minutes, words = float(sys.argv[1]), sys.argv[2:]
    number = int(os.environ.get('SEED', str(int(time.time()))))
    for server in (real, ours):
        name_uids(server)
        seed(server)
    served = resources()
    until, count, seen, codes = time.time() + 60 * minutes, 0, {}, collections.Counter()
    choose = random.Random(number)
    while time.time() < until:
        request = draw(choose, served)
        if words and not any(word in request[1] for word in words):
            continue
        count += 1
        answers = [Answer(server, *request) for server in (real, ours)]
        codes[answers[0].code] += 1
        differences = answers[0].differences(answers[1])
        if not differences:
            continue
        if request[0] not in ('GET', 'HEAD', 'OPTIONS', 'TRACE'):
            for server in (real, ours):
                seed(server)
        answers = [Answer(server, *request) for server in (real, ours)]
        differences = answers[0].differences(answers[1])
        if not differences:
            continue
        method, path, headers, body = request
        shape = (method if method in ('GET', 'POST', 'PUT', 'PATCH', 'DELETE') else 'other', re.sub(r'"[^"]*"|\d+|/[^ ]*', '', '\n'.join(differences))[:160])
        seen[shape] = seen.get(shape, 0) + 1
        if seen[shape] == 1:
            extra = {name: value for name, value in headers.items() if (name, value) not in (('User-Agent', 'hunt'), ('Authorization', 'Bearer ' + hunt.TOKEN))}
            print(f'## {method} {path} {extra} {body[:200] if body is not None else ""}')
            print('\n'.join('   => ' + line for line in differences[:12]))
            sys.stdout.flush()
    print(f'requests {count} kinds of differences {len(seen)} seed {number} codes {dict(codes)}')
    for (method, shape), times in sorted(seen.items(), key=lambda one: -one[1])[:60]:
        print(f'   {times} x {method} {shape[:140]!r}')


if __name__ == '__main__':
    main()
