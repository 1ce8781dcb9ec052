"""Opens watches with every combination of parameters on kube-apiserver and on Pintle and prints where their streams differ.

usage: watches.py COUNT   (servers: REAL_PORT, OUR_PORT, token TOKEN, as for hunt.py; SEED repeats a run)

A stream is compared event by event: types, objects, bookmarks, the annotation that ends initial events, errors inside of the
stream, tables and metadata.
"""
import concurrent.futures, os, random, re, sys, threading, time
import hunt, surface
from hunt import ours, real
from surface import Answer, name_uids, seed

SPACE = surface.SPACE
PATHS = (
    f'/api/v1/namespaces/{SPACE}/configmaps', f'/api/v1/namespaces/{SPACE}/configmaps', f'/api/v1/namespaces/{SPACE}/events', f'/api/v1/namespaces/{SPACE}/pods',
    f'/apis/surface.example.com/v1/namespaces/{SPACE}/gulls', f'/apis/surface.example.com/v1beta1/namespaces/{SPACE}/gulls', f'/apis/events.k8s.io/v1/namespaces/{SPACE}/events',
    f'/api/v1/namespaces/{SPACE}/configmaps/a', f'/api/v1/watch/namespaces/{SPACE}/configmaps', f'/api/v1/watch/namespaces/{SPACE}/configmaps/a', '/api/v1/namespaces/missing/configmaps',
)
# `OLD` is a version before the objects of the hunt were made, `NOW` one after it.
VERSIONS = (None, None, '', '0', '1', 'OLD', 'OLD', 'NOW', 'NOW', 'x', '-1', '99999999999', '00')
MATCHES = (None,) * 4 + ('NotOlderThan', 'NotOlderThan', 'Exact', 'x', '')
INITIAL = (None,) * 3 + ('true', 'true', 'false', 'x')
BOOKMARKS = (None, None, 'true', 'true', 'false', 'x')
MORE = ('', '', '', '&labelSelector=x%3Da', '&labelSelector=(', '&fieldSelector=metadata.name%3Da', '&fieldSelector=nope%3Da', '&limit=1', '&limit=x', '&continue=x', '&pretty=true', '&includeObject=Object', '&includeObject=None', '&includeObject=x', '&dryRun=All')
META = ';v=v1;g=meta.k8s.io'
MEDIA = (
    'application/json', 'application/json', 'application/json;stream=watch', 'application/json;as=Table' + META, 'application/json;as=PartialObjectMetadata' + META,
    'application/json;as=Table;v=v1beta1;g=meta.k8s.io', 'application/yaml', 'application/cbor', 'application/cbor-seq', 'application/vnd.kubernetes.protobuf', 'application/vnd.kubernetes.protobuf;stream=watch',
    'application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io', 'application/vnd.kubernetes.protobuf;as=PartialObjectMetadata' + META, 'text/html', '*/*', '',
)
# One connection for each thread and server.
HELD = threading.local()


class Held:
    """A server as `Answer` knows it, with a connection of the thread."""

    def __init__(self, server):
        self.addr, self.c, self.masked_uid = server.addr, None, server.masked_uid


def both():
    if not hasattr(HELD, 'servers'):
        HELD.servers = [Held(server) for server in (real, ours)]
    return HELD.servers


def draw(choose, versions):
    """(paths of both, accept)"""
    path, version = choose.choice(PATHS), choose.choice(VERSIONS)
    query = '' if '/watch/' in path and choose.random() < .7 else '&watch=' + choose.choice(('1', '1', 'true', 'True'))
    for name, values in (('resourceVersionMatch', MATCHES), ('sendInitialEvents', INITIAL), ('allowWatchBookmarks', BOOKMARKS)):
        value = choose.choice(values)
        query += '' if value is None else f'&{name}={value}'
    query += choose.choice(MORE)
    paths = []
    for held in versions:
        own = held.get(version, version)
        paths.append(f'{path}?timeoutSeconds=2{query}' + ('' if own is None else f'&resourceVersion={own}'))
    return paths, choose.choice(MEDIA)


def play(drawn):
    paths, accept = drawn
    headers = {'Authorization': 'Bearer ' + hunt.TOKEN, 'User-Agent': 'hunt', 'Accept': accept}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda pair: Answer(pair[0], 'GET', pair[1], headers, None), zip(both(), paths)))
    for answer in answers:
        # A version in an error is of one server; the order of the first events is not said.
        answer.body = re.sub(r'(too old resource version: )\d+ \(\d+\)', r'\1V', str(answer.body))
        answer.body = re.sub(r'\d{3,}', 'N', answer.body)
    return answers[0].differences(answers[1])


def main():
    count, number = int(sys.argv[1]), int(os.environ.get('SEED', str(int(time.time()))))
    versions = []
    for server in (real, ours):
        name_uids(server)
        old = server.call('GET', '/api/v1/namespaces/default/configmaps')[1]['metadata']['resourceVersion']
        seed(server)
        now = server.call('GET', '/api/v1/namespaces/default/configmaps')[1]['metadata']['resourceVersion']
        versions.append({'OLD': old, 'NOW': now})
    choose, seen = random.Random(number), {}
    drawn = [draw(choose, versions) for _ in range(count)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        for (paths, accept), differences in zip(drawn, pool.map(play, drawn)):
            differences = differences and play((paths, accept))
            if not differences:
                continue
            shape = re.sub(r'"[^"]*"|\d+|/[^ ]*', '', '\n'.join(differences))[:160]
            seen[shape] = seen.get(shape, 0) + 1
            if seen[shape] == 1:
                print(f'## GET {paths[0]} {accept}')
                print('\n'.join('   => ' + line for line in differences[:6]))
                sys.stdout.flush()
    print(f'watches {count} kinds of differences {len(seen)} seed {number}')


if __name__ == '__main__':
    main()
