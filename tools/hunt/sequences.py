"""Plays random sequences of operations by three managers on kube-apiserver and on Pintle and prints where answers or stored bytes differ.

usage: sequences.py MINUTES [kind ...]   (servers: REAL_PORT, OUR_PORT, token TOKEN, as for hunt.py; ETCD_PORT, prefixes /registry and OUR_PREFIX)

Each sequence has one object of a base, a namespace of its own and up to ten operations between a create and a delete: updates, the
four patches, apply, subresources, reads in all media types, lists, pages, watches, deletes of one and of all. Changes are made from
the schema that the server publishes. A sequence ends at its first difference, and is played again: only what differs twice is
printed, so that a second that begins between two servers is no difference. SEED repeats a run, and AT one of its sequences.

Both servers need --service-cluster-ip-range=10.0.0.128/25, so that addresses are of one length in stored bytes.
"""
import base64, collections, copy, datetime, difflib, http.client, json, os, random, re, sys, time
import yaml
import hunt
from hunt import apply, bases, diff, mutations, ours, real, schema_of, short, where

ETCD = ('127.0.0.1', int(os.environ.get('ETCD_PORT', '2379')))
PREFIXES = ('/registry', os.environ.get('OUR_PREFIX', '/ours'))
MANAGERS = ('alpha', 'beta', 'gamma')
JSON, YAML, PROTOBUF = 'application/json', 'application/yaml', 'application/vnd.kubernetes.protobuf'
META = ';v=v1;g=meta.k8s.io'
# What a write may be answered in, and a read.
ANSWERS = (JSON, JSON, JSON, YAML, PROTOBUF)
MEDIA = (
    JSON, YAML, PROTOBUF, 'application/cbor', '*/*', 'text/html', JSON + ';pretty=1', 'application/json;q=0.1, application/yaml;q=0.9',
    JSON + ';as=Table' + META, JSON + ';as=Table;v=v1beta1;g=meta.k8s.io', YAML + ';as=Table' + META, PROTOBUF + ';as=Table' + META,
    JSON + ';as=PartialObjectMetadata' + META, PROTOBUF + ';as=PartialObjectMetadata' + META,
    JSON + ';as=PartialObjectMetadataList' + META, JSON + ';as=Unknown' + META,
)
LISTS = (
    '', '?limit=1', '?labelSelector=a', '?labelSelector=a in (1,2)', '?labelSelector=!b', '?labelSelector=(', '?resourceVersion=0',
    '?resourceVersion=1', '?resourceVersionMatch=Exact', '?fieldSelector=spec.none=x', '?includeObject=Object', '?pretty=true', '?limit=-1',
    '?continue=x', '?timeoutSeconds=x', '?resourceVersion=x', '?sendInitialEvents=true',
)
DELETES = (
    None, {'gracePeriodSeconds': 0}, {'propagationPolicy': 'Foreground'}, {'propagationPolicy': 'Orphan'}, {'dryRun': ['All']}, {'dryRun': ['x']},
    {'gracePeriodSeconds': 7}, {'preconditions': {'uid': 'x'}}, {'preconditions': {'resourceVersion': '1'}}, {'orphanDependents': True},
    {'orphanDependents': True, 'propagationPolicy': 'Orphan'}, {'propagationPolicy': 'None'}, {'gracePeriodSeconds': -1}, {'unknown': 1},
    {'ignoreStoreReadErrorWithClusterBreakingPotential': True},
)
UID = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')
TODAY = '|'.join(str((datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=day)).date()) for day in (0, 1))
TIME = re.compile(rf'(?:{TODAY})T\d\d:\d\d:\d\d(?:\.\d+)?Z')
VERSION = re.compile(r'(resourceVersion\\*"?: ?\\*"?|ResourceVersion: )(\d+)')


def dumps(value):
    """As clients send it: Go keeps the text of patches and raw fields, and Python would escape what is not ASCII."""
    return json.dumps(value, ensure_ascii=False, separators=(',', ':'))


class Side:
    """One server, and what it said of the object."""

    def __init__(self, server, prefix):
        self.server, self.prefix = server, prefix
        self.object, self.protobuf, self.made, self.token, self.generated = None, None, None, None, None
        self.versions, self.uids = {}, {}

    def ask(self, method, path, body=None, content=JSON, accept=JSON):
        for attempt in (0, 1):
            try:
                if self.server.c is None:
                    self.server.c = http.client.HTTPSConnection(*self.server.addr, context=hunt.CTX, timeout=60)
                headers = {'Authorization': 'Bearer ' + hunt.TOKEN, 'Accept': accept, 'User-Agent': 'hunt'}
                if body is not None:
                    headers['Content-Type'] = content
                self.server.c.request(method, path.replace(' ', '%20'), body.encode() if isinstance(body, str) else body, headers)
                answer = self.server.c.getresponse()
                data = answer.read()
                kept = sorted(f'{key.lower()}: {value}' for key, value in answer.getheaders() if key.lower() in ('warning', 'content-type', 'allow', 'retry-after', 'location'))
                return answer.status, data, kept
            except (http.client.HTTPException, OSError) as error:
                self.server.c = None
                if attempt:
                    return 599, str(error).encode(), []

    def masked(self, data):
        """Without what differs from server to server: versions and uids are numbered in the order in which they appear."""
        if b'k8s\0' in data[:16]:
            # Several frames of a watch are taken for one value.
            return self.masked_message(message(data[data.index(b'k8s\0') + 4:]) or [])
        text = data.decode('utf8', 'replace')
        text = re.sub(r'("continue"\s*:\s*"|\n  continue: )([^"\n]+)', lambda m: m[1] + self.token_text(m[2]), text)
        if '"items"' in text or '"rows"' in text or '\nitems:' in text or '\nrows:' in text or 'kind: Table' in text:
            # A list is of the store's version, which other writes raise too, and its columns are described in other words.
            text = re.sub(r'("metadata": ?\{\s*"resourceVersion": ?"|\nmetadata:\n(?:  continue: .*\n)?  resourceVersion: ")\d+', r'\1V', text)
            text = re.sub(r'("description": ?")(?:[^"\\]|\\.)*"', r'\1"', text)
            text = re.sub(r'\n- description: (?:.*\n)(?:    .*\n)*', '\n- description\n', text)
        if '"Status"' in text or 'kind: Status' in text:
            text = re.sub(r'("metadata": ?\{\s*"resourceVersion": ?"|\nmetadata:\n  resourceVersion: ")\d+', r'\1V', text)
        text = self.masked_text(text)
        text = re.sub(r'("?(?:nodePort|healthCheckNodePort)\\?"?: ?)3\d{4}', r'\g<1>30000', text)
        text = re.sub(r'(?:\d+:3\d{4}/[A-Z]+,?)+', 'PORTS', text)
        return re.sub(r'"(?:\d+s|<invalid>)"', '"AGE"', text)

    def masked_text(self, text):
        if self.generated:
            text = text.replace(self.generated, 'GENERATED')
        text = VERSION.sub(lambda m: m[1] + f'V{self.versions.setdefault(m[2], len(self.versions))}', text)
        text = re.sub(r'(ResourceVersion\s+in record )\(\d+\)', r'\1(V)', text)
        text = UID.sub(lambda m: f'UID{self.uids.setdefault(m[0], len(self.uids))}', text)
        text = TIME.sub('NOW', text)
        return re.sub(r'10\.0\.0\.\d+', 'IP', text)

    def masked_message(self, fields, depth=0):
        """The fields of a protobuf message, as text where they are."""
        if len(fields) == 2 and [field for field, _ in fields] == [1, 2] and isinstance(fields[0][1], int) and abs(fields[0][1] - time.time()) < 10**5:
            return 'NOW'
        masked = []
        for field, value in fields:
            if isinstance(value, list):
                value = self.masked_message(value, depth + 1)
            elif isinstance(value, str):
                if value.isdigit() and (field == 6 or field == 2 and depth < 3) and int(value) > 200:
                    value = 'V'
                elif field == 3 and depth < 3 and value.startswith('ey'):
                    value = self.token_text(value)
                value = self.masked_text(value)
            elif 30000 <= value < 32768:
                value = 30000
            masked.append([field, value])
        return masked

    def token_text(self, token):
        try:
            found = json.loads(base64.urlsafe_b64decode(token + '=' * (-len(token) % 4)))
            found['rv'] = 'V'
            return self.masked_text(dumps(found)).replace('"', "'")
        except ValueError:
            return token

    def stored(self, key):
        connection = http.client.HTTPConnection(*ETCD, timeout=10)
        name = base64.b64encode((self.prefix + key).encode()).decode()
        connection.request('POST', '/v3/kv/range', dumps({'key': name}))
        found = json.loads(connection.getresponse().read()).get('kvs')
        connection.close()
        return parsed(self.masked(base64.b64decode(found[0].get('value', '')))) if found else None


def sequence(base, choose, sides, space):
    """Yields the operations of one sequence: (label, method, path, body or bodies, content type, accept)."""
    path, subresources = where(base)
    namespaced = '/namespaces/' in path
    name = base['metadata'].get('name') or 'x'
    if namespaced:
        path = re.sub(r'/namespaces/[^/]+/', f'/namespaces/{space}/', path)
        base['metadata']['namespace'] = space
    at, schema = f'{path}/{name}', schema_of(base)

    def query(*more):
        some = ['fieldManager=' + choose.choice(MANAGERS)] + [one for one in more if one]
        if choose.random() < .1:
            some.append('dryRun=All')
        if choose.random() < .15:
            some.append('fieldValidation=' + choose.choice(('Strict', 'Ignore', 'Warn')))
        return '?' + '&'.join(some)

    def changed(given, own):
        """One or two fields of an object changed by the schema."""
        for _ in range(own.randint(1, 2)):
            found = list(mutations(given, schema))
            if found:
                where_to, _, new = own.choice(found)
                if where_to not in (('apiVersion',), ('kind',)):
                    given = apply(given, where_to, new)
        if own.random() < .1:
            given['bogus'] = 1
        return given

    def encoded(bodies):
        """As JSON or YAML: (bodies, content type)."""
        if choose.random() < .2:
            return [yaml.safe_dump(body) for body in bodies], YAML
        return [dumps(body) for body in bodies], JSON

    def change():
        """A merge patch of one field, or of a label."""
        patch = {'metadata': {'labels': {choose.choice('abc'): choose.choice(('1', '2', None))}}}
        if choose.random() < .6:
            found = [one for one in mutations(base, schema) if all(isinstance(step, str) for step in one[0]) and one[0] not in (('apiVersion',), ('kind',))]
            if found:
                where_to, _, new = choose.choice(found)
                patch = {}
                place = patch
                for step in where_to[:-1]:
                    place = place.setdefault(step, {})
                place[where_to[-1]] = None if new is hunt.DELETE else new
        return patch

    if choose.random() < .1:
        created = copy.deepcopy(base)
        created['metadata'].pop('name', None)
        created['metadata']['generateName'] = name[:20] + '-'
        yield 'generate', 'POST', path + query(), dumps(created), JSON, JSON
    bodies, content = encoded([base, base])
    yield 'create', 'POST', path + query(), bodies, content, choose.choice(ANSWERS)
    for _ in range(choose.randint(3, 9)):
        kind = choose.choice((
            'put', 'put', 'put protobuf', 'merge', 'merge', 'json', 'strategic', 'apply', 'apply', 'status', 'patch status', 'apply status', 'scale',
            'other', 'get', 'get', 'list', 'list', 'page', 'watch', 'delete', 'deletecollection', 'again', 'missing',
        ))
        accept, seed = choose.choice(ANSWERS), choose.random()
        if kind in ('put', 'status'):
            if kind == 'status' and 'status' not in subresources:
                continue
            # The same change to what each server has.
            bodies = []
            for side in sides:
                own = random.Random(seed)
                held = changed(copy.deepcopy(side.object or base), own)
                if own.random() < .5 and isinstance(held.get('metadata'), dict):
                    held['metadata'].pop('resourceVersion', None)
                bodies.append(held)
            bodies, content = encoded(bodies)
            yield kind, 'PUT', (at + '/status' if kind == 'status' else at) + query(), bodies, content, accept
        elif kind == 'put protobuf':
            yield 'get', 'GET', at, None, JSON, PROTOBUF
            if all(side.protobuf for side in sides):
                yield kind, 'PUT', at + query(), [side.protobuf for side in sides], PROTOBUF, accept
        elif kind in ('merge', 'strategic', 'patch status'):
            target = at
            if kind == 'patch status':
                if 'status' not in subresources:
                    continue
                target += '/status'
            patch = change()
            if kind == 'patch status' and choose.random() < .5:
                known = hunt.STATUS.get(base['kind'])
                patch = {'status': choose.choice(known)} if known else patch
            content = choose.choice(('merge', 'strategic-merge')) if kind == 'patch status' else {'merge': 'merge', 'strategic': 'strategic-merge'}[kind]
            yield kind, 'PATCH', target + query(), dumps(patch), f'application/{content}-patch+json', accept
        elif kind == 'json':
            found = [one for one in mutations(base, schema) if one[0] not in (('apiVersion',), ('kind',))]
            if not found:
                continue
            operations = []
            for where_to, _, new in (choose.choice(found) for _ in range(choose.randint(1, 2))):
                pointer = ''.join('/' + str(step).replace('~', '~0').replace('/', '~1') for step in where_to)
                operations.append({'op': 'remove', 'path': pointer} if new is hunt.DELETE else {'op': choose.choice(('add', 'replace', 'test')), 'path': pointer, 'value': new})
            yield kind, 'PATCH', at + query(), dumps(operations), 'application/json-patch+json', accept
        elif kind in ('apply', 'apply status'):
            config = changed(copy.deepcopy(base), choose) if choose.random() < .7 else copy.deepcopy(base)
            target = at
            if kind == 'apply status':
                known = hunt.STATUS.get(base['kind'])
                if 'status' not in subresources or not known:
                    continue
                target += '/status'
                config = {'apiVersion': base['apiVersion'], 'kind': base['kind'], 'metadata': {'name': name}, 'status': choose.choice(known)}
            if isinstance(config.get('metadata'), dict):
                config['metadata']['labels'] = {choose.choice('abc'): choose.choice('12')}
            body = dumps(config) if choose.random() < .5 else yaml.safe_dump(config)
            yield kind, 'PATCH', target + query(choose.choice(('force=true', 'force=true', ''))), body, 'application/apply-patch+yaml', accept
        elif kind == 'scale':
            if 'scale' in subresources:
                replicas = {'spec': {'replicas': choose.choice((0, 3, -1))}}
                method = choose.choice(('GET', 'PATCH', 'PUT', 'APPLY'))
                if method == 'GET':
                    yield kind, 'GET', at + '/scale', None, JSON, choose.choice(MEDIA)
                elif method == 'PATCH':
                    yield kind, 'PATCH', at + '/scale' + query(), dumps(replicas), 'application/merge-patch+json', accept
                else:
                    replicas.update(apiVersion='autoscaling/v1', kind='Scale', metadata={'name': name, 'namespace': space})
                    given = (method, JSON) if method == 'PUT' else ('PATCH', 'application/apply-patch+yaml')
                    yield kind, given[0], at + '/scale' + query('force=true' if given[0] == 'PATCH' else ''), dumps(replicas), given[1], accept
        elif kind == 'other':
            others = [one for one in subresources if one not in ('status', 'scale', 'log', 'exec', 'attach', 'portforward', 'proxy', 'token')]
            if others:
                sub = choose.choice(others)
                if sub in ('binding', 'eviction'):
                    body = {'metadata': {'name': name}, 'target': {'kind': 'Node', 'name': 'n'}} if sub == 'binding' else {'metadata': {'name': name}}
                    yield sub, 'POST', f'{at}/{sub}', dumps(body), JSON, accept
                else:
                    bodies = [dumps(changed(copy.deepcopy(side.object or base), random.Random(seed))) for side in sides]
                    yield sub, 'PUT', f'{at}/{sub}' + query(), bodies, JSON, accept
        elif kind == 'get':
            yield kind, 'GET', at + choose.choice(('', '', '?pretty=true', '?resourceVersion=0')), None, JSON, choose.choice(MEDIA)
        elif kind in ('list', 'page'):
            if namespaced:
                yield kind, 'GET', path + choose.choice(LISTS + (f'?fieldSelector=metadata.name={name}',)), None, JSON, choose.choice(MEDIA)
            if kind == 'page' and namespaced:
                second = copy.deepcopy(base)
                second['metadata']['name'] = 'zz-' + name[:20]
                yield 'create', 'POST', path + query(), dumps(second), JSON, JSON
                yield kind, 'GET', path + '?limit=1', None, JSON, JSON
                if all(side.token for side in sides):
                    yield kind, 'GET', [path + '?limit=1&continue=' + side.token for side in sides], None, JSON, choose.choice(MEDIA[:3] + MEDIA[8:9])
                yield 'delete', 'DELETE', path + '/zz-' + name[:20] + '?gracePeriodSeconds=0', None, JSON, JSON
        elif kind == 'watch':
            if namespaced and all(side.made for side in sides):
                paths = [f'{path}?watch=1&timeoutSeconds=1&resourceVersion={side.made}' for side in sides]
                yield kind, 'GET', paths, None, JSON, choose.choice(MEDIA[:1] + MEDIA[8:9] + MEDIA[12:13])
        elif kind == 'delete':
            options = choose.choice(DELETES)
            if options is None or choose.random() < .5 or any(isinstance(value, dict) for value in options.values()):
                yield kind, 'DELETE', at, options and dumps(options), JSON, accept
            else:
                text = '&'.join(f'{key}={value[0] if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value}' for key, value in options.items())
                yield kind, 'DELETE', f'{at}?{text}', None, JSON, accept
        elif kind == 'deletecollection':
            if namespaced and base['kind'] != 'Service':
                yield kind, 'DELETE', path + choose.choice(('', '?labelSelector=a', '?dryRun=All', '?fieldSelector=metadata.name=none')), None, JSON, accept
        elif kind == 'again':
            yield kind, 'POST', path + query(), dumps(base), JSON, accept
        else:
            method = choose.choice(('GET', 'PUT', 'PATCH', 'DELETE', 'POST'))
            absent = copy.deepcopy(base)
            absent['metadata']['name'] = 'absent'
            content = JSON if method != 'PATCH' else choose.choice(('application/merge-patch+json', 'application/json', 'text/plain'))
            yield kind, method, f'{path}/absent' + choose.choice(('', '', '/status', '/none')), dumps(absent) if method in ('PUT', 'PATCH', 'POST') else None, content, accept
    yield 'free', 'PATCH', at, dumps({'metadata': {'finalizers': None}}), 'application/merge-patch+json', JSON
    yield 'end', 'DELETE', at + '?gracePeriodSeconds=0', None, JSON, JSON


def message(data):
    """The fields of a protobuf message, [(field, number or text or fields)]; None if it is none."""
    fields, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag is None or tag >> 3 == 0:
            return None
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            if value is None:
                return None
        elif kind == 2:
            length, at = varint(data, at)
            if length is None or at + length > len(data):
                return None
            value, at = data[at:at + length], at + length
            text = value.decode('utf8', 'replace')
            below = None if not value or (text.isprintable() and '\ufffd' not in text) else message(value)
            value = below if below is not None else text
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at:at + size].hex(), at + size
        else:
            return None
        fields.append((tag >> 3, value))
    return fields


def varint(data, at):
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    return None, at


def parsed(masked):
    if not isinstance(masked, str):
        return masked
    try:
        found = json.loads(masked)
    except ValueError:
        return masked
    # Go keeps managers in a map.
    if isinstance(found, dict) and isinstance(found.get('details'), dict) and any(cause.get('reason') == 'FieldManagerConflict' for cause in found['details'].get('causes', [])):
        found['details']['causes'].sort(key=json.dumps)
    return found


def differences_of(one, other):
    if isinstance(one, (dict, list)) and type(one) is type(other):
        return diff(one, other)
    if isinstance(one, str) and isinstance(other, str) and '\n' in one:
        lines = difflib.unified_diff(one.split('\n'), other.split('\n'), 'real', 'ours', n=1, lineterm='')
        return ['\n'.join(lines)[:2000]]
    return [f'{str(one)[:400]} | {str(other)[:400]}']


def play(base, seed, space, counts):
    """Plays one sequence up to its first difference: (label, what was sent, differences), or None."""
    choose = random.Random(seed)
    base = copy.deepcopy(base)
    sides = [Side(real, PREFIXES[0]), Side(ours, PREFIXES[1])]
    for side in sides:
        side.ask('POST', '/api/v1/namespaces', dumps({'metadata': {'name': space}}))
    history, found = [], None
    for label, method, path, body, content, accept in sequence(base, choose, sides, space):
        if found and label not in ('free', 'end'):
            continue
        counts[label.split()[-1], accept.split(';as')[0]] += 1
        bodies = body if isinstance(body, list) else [body, body]
        paths = path if isinstance(path, list) else [path, path]
        answers = []
        for side, at, own in zip(sides, paths, bodies):
            code, data, headers = side.ask(method, at, own, content, accept)
            raw = parsed(data.decode('utf8', 'replace')) if not data.startswith(b'k8s') else data
            if code < 300 and isinstance(raw, bytes) and method == 'GET' and accept == PROTOBUF:
                side.protobuf = raw
            if code < 300 and isinstance(raw, dict):
                metadata = raw.get('metadata') if isinstance(raw.get('metadata'), dict) else {}
                side.token = metadata.get('continue')
                if label == 'generate':
                    side.generated = metadata.get('name')
                elif raw.get('kind') == base['kind'] and metadata.get('name') == base['metadata']['name'] and 'dryRun' not in at and method != 'DELETE':
                    side.object = raw
                    if label == 'create':
                        side.made = metadata.get('resourceVersion')
            answers.append((code, parsed(side.masked(data)), headers))
        history.append(f'{method} {paths[1]} {content} {accept} {short(bodies[1]) if not isinstance(bodies[1], bytes) else "BYTES"}')
        if found:
            continue
        (code, one, headers), (our_code, other, our_headers) = answers
        differences = []
        if code != our_code:
            differences.append(f'code {code} | {our_code}: {short(one)} | {short(other)}')
        elif one != other:
            differences += differences_of(one, other)
        if headers != our_headers:
            differences.append(f'headers {headers} | {our_headers}')
        if not differences and method not in ('GET', 'DELETE') and code < 300:
            key = stored_key(base, paths[0])
            held = [side.stored(key) for side in sides]
            counts['stored'] += 1
            if held[0] != held[1]:
                differences.append('stored ' + ' '.join(differences_of(*held)))
        if differences:
            found = (label, history[-4:], differences)
    for side in sides:
        side.ask('DELETE', f'/api/v1/namespaces/{space}')
    return found


def main():
    minutes, kinds = float(sys.argv[1]), sys.argv[2:]
    seed = int(os.environ.get('SEED', str(int(time.time()))))
    only = [int(at) for at in os.environ.get('AT', '').split(',') if at]
    custom_kinds()
    found = [base for base in bases(kinds) + CUSTOM if where(base) and base['metadata'].get('name') and (not kinds or base['kind'] in kinds)]
    for base in found:
        base['metadata'].pop('namespace', None)
    until, count, seen, counts = time.time() + 60 * minutes, 0, {}, collections.Counter()
    while time.time() < until:
        count += 1
        if only and count not in only:
            if count > max(only):
                break
            continue
        own = random.Random(f'{seed} {count}')
        base, inner = own.choice(found), own.random()
        first = play(base, inner, f's{seed}-{count}', counts)
        if not first:
            continue
        second = play(base, inner, f's{seed}-{count}b', counts)
        if not second or second[0] != first[0]:
            continue
        label, history, differences = second
        shape = (base['kind'], label, re.sub(r'\[\d+\]|"[^"]*"|\d+', '', '\n'.join(differences))[:300])
        seen[shape] = seen.get(shape, 0) + 1
        if seen[shape] == 1:
            print(f'## {base["apiVersion"]} {base["kind"]} {label} (sequence {count}, seed {seed})')
            print('\n'.join('   ' + line for line in history))
            print('\n'.join('   => ' + line for line in differences))
            sys.stdout.flush()
    stored = counts.pop('stored', 0)
    print(f'sequences {count} requests {sum(counts.values())} of {len(found)} bases, stored values compared {stored} kinds of differences {len(seen)} seed {seed}')
    for column in (0, 1):
        print('  ', ' '.join(f'{key}={value}' for key, value in sorted(sum_by(counts, column).items())))


def sum_by(counts, column):
    sums = collections.Counter()
    for key, value in counts.items():
        sums[key[column]] += value
    return sums


CUSTOM = []


def custom_kinds():
    """A custom kind with every feature of a schema, and its objects."""
    import custom
    definition = custom.crd('shrikes', 'Shrike')
    for server in (real, ours):
        server.call('POST', custom.D, definition)
        for _ in range(300):
            if server.call('GET', f'/apis/{custom.G}/v1/namespaces/default/shrikes')[0] == 200 and server.resource(f'{custom.G}/v1', 'Shrike'):
                break
            server.disc.clear()
            time.sleep(.2)
    for _ in range(300):
        hunt.load_schemas()
        if (custom.G, 'v1', 'Shrike') in hunt.bygvk:
            break
        time.sleep(.2)
    CUSTOM.extend([dict(copy.deepcopy(custom.base), apiVersion=f'{custom.G}/v1', kind='Shrike', metadata={'name': 'shrike'})] * 4)


KEYS = {'services': '/services/specs', 'endpoints': '/services/endpoints', 'nodes': '/minions', 'replicationcontrollers': '/controllers', 'ingresses': '/ingress'}


def stored_key(base, path):
    """Where kube-apiserver stores the object."""
    core, group, _, namespace, resource = re.match(r'/(?:api/(v1)|apis/([^/]+)/([^/]+))(?:/namespaces/([^/?]+)(?=/))?/([^/?]+)', path).groups()
    place = KEYS.get(resource, f'/{resource}')
    if group and ('.example.' in group or group in ('apiregistration.k8s.io', 'apiextensions.k8s.io')):
        place = f'/{group}/{resource}'
    return place + (f'/{namespace}' if namespace else '') + '/' + base['metadata']['name']


if __name__ == '__main__':
    main()
