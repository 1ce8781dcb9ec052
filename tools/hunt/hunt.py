"""Sends the same mutated objects to kube-apiserver and to Pintle and prints where the answers differ.

usage: hunt.py create,update,status,cross,ratchet [kind ...]   (servers: REAL_PORT, OUR_PORT on 127.0.0.1; token TOKEN)

cross updates each base to every other base of its kind. ratchet writes objects that a create refuses straight into the etcd of
both servers (ETCD, prefixes /registry and OUR_PREFIX) and then changes a label of them.
"""
from collections import Counter
import base64, sys, json, ssl, copy, glob, http.client, os, re, yaml, time
REAL=('127.0.0.1',int(os.environ.get('REAL_PORT','38443')))
OURS=('127.0.0.1',int(os.environ.get('OUR_PORT','38543')))
CTX=ssl._create_unverified_context()
HERE=os.path.dirname(os.path.abspath(__file__))
REPO=os.path.join(HERE,'..','..','')
TOKEN=os.environ.get('TOKEN','tok')
class Server:
    def __init__(s,addr): s.addr=addr; s.c=None; s.disc={}
    def call(s,method,path,body=None,ct='application/json',tok=TOKEN):
        for attempt in (0,1):
            try:
                if s.c is None: s.c=http.client.HTTPSConnection(*s.addr,context=CTX,timeout=30)
                s.c.request(method,path,None if body is None else json.dumps(body,separators=(',',':')),{'Authorization':'Bearer '+tok,'Content-Type':ct,'Accept':'application/json'})
                r=s.c.getresponse(); data=r.read()
                warn=[w for k,w in r.getheaders() if k.lower()=='warning']
                try: ans=json.loads(data)
                except Exception: ans={'raw':data.decode('utf8','replace')}
                return r.status,ans,warn
            except (http.client.HTTPException,OSError) as e:
                s.c=None
                if attempt: return 599,{'reason':'gone','message':str(e)},[]
    def resource(s,av,kind):
        if av not in s.disc:
            p='/api/v1' if av=='v1' else '/apis/'+av
            c,a,_=s.call('GET',p)
            s.disc[av]=(p,a.get('resources',[]))
        p,rs=s.disc[av]
        for r in rs:
            if r['kind']==kind and '/' not in r['name']:
                return p,r,[x['name'].split('/')[1] for x in rs if x['name'].startswith(r['name']+'/')]
        return None
real,ours=Server(REAL),Server(OURS)
swagger,bygvk={},{}
def load_schemas():
    swagger.clear(); swagger.update(real.call('GET','/openapi/v2')[1]['definitions'])
    for n,d in swagger.items():
        for g in d.get('x-kubernetes-group-version-kind',[]): bygvk[(g['group'],g['version'],g['kind'])]=n
load_schemas()
def deref(s):
    if '$ref' in s: return swagger[s['$ref'].split('/')[-1]],s['$ref'].split('/')[-1]
    return s,None
JUNK={'string':['A b!',''],'integer':[-1,0,70000],'boolean':[True,False],'number':[-1]}
def junk(s,depth=0):
    """values to add for an absent field"""
    s,name=deref(s)
    if name and name.endswith('.Quantity'): return ['-1','1.5','1Gi']
    if name and name.endswith('.IntOrString'): return [-1,0,'a b','150%','10%']
    if name and name.endswith('Time'): return ['2020-01-01T00:00:00Z' if not name.endswith('MicroTime') else '2020-01-01T00:00:00.000000Z']
    t=s.get('type')
    if t in JUNK:
        if s.get('format')=='byte': return ['YWJj']
        return JUNK[t]
    if t=='array':
        out=[[]]
        for j in junk(s['items'],depth+1)[:2]: out.append([j])
        j=junk(s['items'],depth+1)[0]; out.append([j,j])
        return out
    if 'additionalProperties' in s:
        js=junk(s['additionalProperties'],depth+1)
        return [{'a b':js[0]},{'cpu':js[0]},{'a':js[-1]}]
    if 'properties' in s:
        out=[{}]
        if depth<2:
            o={}
            for k,v in s['properties'].items():
                js=junk(v,depth+1)
                if js: o[k]=js[0]
            if o: out.append(o)
        return out
    return [{}]
def mutations(v,s,path=()):
    """yields (path,label,newvalue or DELETE)"""
    s,name=deref(s)
    if isinstance(v,dict):
        props=s.get('properties',{}); ap=s.get('additionalProperties')
        if name and name.endswith('.ObjectMeta') and not META:
            if len(path)<2: return
            props={k:x for k,x in props.items() if k in ('labels','annotations','name','finalizers')}
        for k,val in v.items():
            ps=props.get(k) or ap or {}
            yield path+(k,),'remove',DELETE
            yield from mutations(val,ps,path+(k,))
        for k,ps in props.items():
            if k not in v and k not in SKIP:
                for j in junk(ps): yield path+(k,),'add '+json.dumps(j)[:80],j
        if ap and v:
            yield path+('a b!',),'addkey',junk(ap)[0]
    elif isinstance(v,list):
        yield path,'empty',[]
        if v:
            yield path,'dup',v+[copy.deepcopy(v[0])]
            its=s.get('items',{})
            it,_=deref(its)
            if 'properties' in it: yield path,'appendempty',v+[{}]
            elif it.get('type')=='string': yield path,'appendjunk',v+['A b!']
            for i,x in enumerate(v): yield from mutations(x,its,path+(i,))
    elif isinstance(v,bool): yield path,'flip',not v
    elif isinstance(v,(int,float)):
        for n in (0,-1,v+1,1000000): 
            if n!=v: yield path,f'={n}',n
    elif isinstance(v,str):
        cands=['','A b!','x-y','-a','9',v+'/z','é']
        if re.match(r'^[0-9]',v): cands+=['0','-5','7','1e3','1.5']
        if '/' in v or ':' in v: cands+=['a/b/c','/','../x','a:b']
        if '.' in v or ':' in v: cands+=['1.2.3.4','::1','10.0.0.0/8','256.1.1.1']
        if len(v)>0: cands.append('a'*300)
        for c in cands:
            if c!=v: yield path,f'={c[:40]!r}',c
DELETE=object()
META=os.environ.get('META')
SKIP={'managedFields','creationTimestamp','uid','selfLink','resourceVersion','deletionTimestamp','deletionGracePeriodSeconds','generation','apiVersion','kind'}
def apply(o,path,val):
    o=copy.deepcopy(o); t=o
    for p in path[:-1]: t=t[p]
    if val is DELETE: del t[path[-1]]
    else: t[path[-1]]=copy.deepcopy(val)
    return o
def norm(o,server,base_given=None):
    """drops what differs from server to server"""
    o=copy.deepcopy(o); uid=None
    if isinstance(o,dict) and isinstance(o.get('metadata'),dict):
        m=o['metadata']; uid=m.get('uid')
        for k in ('creationTimestamp','resourceVersion','managedFields','uid'): m.pop(k,None)
        if m.get('generateName'): m['name']='GENERATED'
    t=json.dumps(o,sort_keys=True)
    if uid: t=t.replace(uid,'UID')
    t=re.sub(r'20(2[6-9])-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z','NOW',t)
    t=re.sub(r'"10\.0\.\d+\.\d+"','"IP"',t); t=re.sub(r'"fd00:10::[0-9a-f:]+"','"IP6"',t)
    t=re.sub(r'"(nodePort|healthCheckNodePort)": 3\d{4}','"\\1": NP',t)
    return json.loads(t.replace(': NP',': "NP"'))
def said(m):
    """Go prints its own structs, and diffs of them, where nothing can rely on it; STRUCTS=1 shows those as well"""
    m=re.sub(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}','UID',m)
    if os.environ.get('STRUCTS'): return m
    m=re.sub(r'(Invalid|Duplicate|Unsupported) value: (\{.*\}|\[.*\]|map\[.*\])(?=: |, |\]|$)',r'\1 value: STRUCT',m,flags=re.S)
    return re.sub(r'((may not change fields other than|is immutable after creation) ?[^\n]*)\n.*',r'\1',m,flags=re.S)
def causes(a):
    return sorted((c.get('field',''),c.get('reason',''),said(c.get('message',''))) for c in (a.get('details') or {}).get('causes') or [])
def diff(a,b,path=''):
    if type(a)!=type(b): return [f'{path}: {short(a)} | {short(b)}']
    if isinstance(a,dict):
        out=[]
        for k in sorted(set(a)|set(b)):
            if k not in a: out.append(f'{path}.{k}: - | {short(b[k])}')
            elif k not in b: out.append(f'{path}.{k}: {short(a[k])} | -')
            else: out+=diff(a[k],b[k],f'{path}.{k}')
        return out
    if isinstance(a,list):
        if len(a)!=len(b): return [f'{path}: {short(a)} | {short(b)}']
        return [d for i,(x,y) in enumerate(zip(a,b)) for d in diff(x,y,f'{path}[{i}]')]
    if a==b: return []
    if isinstance(a,str) and min(len(a),len(b))>200:
        # From where they differ.
        at=max(0,next((i for i,(x,y) in enumerate(zip(a,b)) if x!=y),min(len(a),len(b)))-60)
        a,b='..'+a[at:],'..'+b[at:]
    return [f'{path}: {short(a)} | {short(b)}']
def short(x): return json.dumps(x)[:int(os.environ.get('WIDTH','300'))]
def compare(r,o):
    """list of difference lines between answers"""
    (rc,ra,rw),(oc,oa,ow)=r,o
    out=[]
    if rc!=oc: out.append(f'code {rc} | {oc}')
    if rc>=400 or oc>=400:
        rm,om=ra.get('message',''),oa.get('message','')
        if rc<400: rm='accepted'
        if oc<400: om='accepted'
        if rc==oc==422:
            rcs,ocs=causes(ra),causes(oa)
            if rcs!=ocs:
                more,less=Counter(rcs)-Counter(ocs),Counter(ocs)-Counter(rcs)
                for c in more.elements(): out.append('  real: '+': '.join(c)[:600])
                for c in less.elements(): out.append('  ours: '+': '.join(c)[:600])
            elif not re.search('may not change fields|immutable after creation',rm) and said(rm)!=said(om): out.append('order/message:\n  real: '+rm[:900]+'\n  ours: '+om[:900])
        elif rm!=om or ra.get('reason')!=oa.get('reason'): out.append(f'  real: {ra.get("reason")} {rm[:600]}\n  ours: {oa.get("reason")} {om[:600]}')
    else:
        d=diff(norm(ra,'r'),norm(oa,'o'))
        out+=['object '+x for x in d]
    if sorted(rw)!=sorted(ow): out.append(f'warnings {rw} | {ow}')
    return out
def bases(kinds):
    out=[]
    only=os.environ.get('ONLY','')   # of the names of files in bases/
    for f in sorted(glob.glob(REPO+'crates/builtin/tests/defaults/*.yaml')) if not only else []:
        for d in yaml.load_all(open(f),Loader=L):
            if d: out.append(d['given'])
    for f in sorted(glob.glob(os.path.join(HERE,'bases',only+'*.yaml'))):
        for d in yaml.load_all(open(f),Loader=L):
            if d: out.append(d)
    return [o for o in out if not kinds or o['kind'] in kinds]
class L(yaml.SafeLoader): pass
L.yaml_implicit_resolvers={k:[(t,r) for t,r in v if t!='tag:yaml.org,2002:timestamp'] for k,v in yaml.SafeLoader.yaml_implicit_resolvers.items()}
def where(o):
    r=real.resource(o['apiVersion'],o['kind'])
    if r is None: return None
    p,res,subs=r
    return p+('/namespaces/'+o['metadata'].get('namespace','default') if res['namespaced'] else '')+'/'+res['name'],subs
seen={}
def report(kind,op,path,label,diffs):
    if not diffs: return
    key=(kind,op,re.sub(r'\[\d+\]','[]',re.sub(r'"[^"]*"','""','\n'.join(diffs))))
    seen[key]=seen.get(key,0)+1
    if seen[key]<=1:
        print(f'## {kind} {op} {".".join(map(str,path))} {label}')
        for d in diffs: print('   ',d)
        sys.stdout.flush()
def both(*a,**k): return real.call(*a,**k),ours.call(*a,**k)
def schema_of(o):
    g,_,v=o['apiVersion'].rpartition('/')
    return {'$ref':'#/definitions/'+bygvk[(g,v,o['kind'])]}
def hunt(ops,kinds):
    total=0
    for op,f in (('cross',cross),('ratchet',ratchet)):
        if op in ops: total+=f(kinds)
    if not set(ops)&{'create','update','status'}: return print('requests',total,'kinds of differences',len(seen))
    for base in bases(kinds):
        base=copy.deepcopy(base); base.setdefault('metadata',{})
        w=where(base)
        if not w: print('no',base['kind']); continue
        url,subs=w; kind=base['kind']; sch=schema_of(base)
        r,o=both('POST',url+'?dryRun=All',base)
        report(kind,'base '+base['metadata'].get('name',''),(),'',compare(r,o))
        if 'create' in ops:
            for path,label,val in mutations(base,sch):
                if path[0] in('apiVersion','kind') : continue
                m=apply(base,path,val); total+=1
                r,o=both('POST',url+'?dryRun=All',m)
                report(kind,'create',path,label,compare(r,o))
        if r[0]>=400 and 'create' not in ops: print('!! base refused',kind,r[1].get('message')); 
        if ('update' in ops or 'status' in ops) :
            name=base['metadata'].get('name')
            if not name: continue
            r,o=both('POST',url,base)
            if r[0]!=201 or o[0]!=201:
                if r[0]!=o[0]: print('!! create',kind,name,r[0],o[0],r[1].get('message'),o[1].get('message'))
                if r[0]==201: real.call('DELETE',url+'/'+name+'?gracePeriodSeconds=0')
                if o[0]==201: ours.call('DELETE',url+'/'+name+'?gracePeriodSeconds=0')
                continue
            report(kind,'created',(),'',compare(r,o))
            R,O=stable(real,url+'/'+name),stable(ours,url+'/'+name)
            if 'update' in ops:
                for path,label,val in mutations(base,sch):
                    if path[0] in('apiVersion','kind') or path==('metadata','name') or path==('metadata',): continue
                    pr=prefixed(R,path,val); po=prefixed(O,path,val)
                    if pr is None or po is None: continue
                    total+=1
                    r=real.call('PUT',url+'/'+name+'?dryRun=All',pr); o=ours.call('PUT',url+'/'+name+'?dryRun=All',po)
                    report(kind,'update',path,label,compare(r,o))
            if 'status' in ops:
                for sub in subs:
                    if sub not in('status','approval','resize','ephemeralcontainers','finalize'): continue
                    sts,_=deref(sch)
                    if sub in('status','approval') and 'status' in sts['properties']:
                        st,_=deref(sts['properties']['status'])
                        full=dict(R.get('status') or {})
                        given=STATUS.get(kind)
                        cands=[]
                        for k,ps in st.get('properties',{}).items():
                            for j in deepjunk(ps): cands.append(((k,),j))
                        for s0 in STATUS.get(kind,[]):
                            for path,label,val in [((),'',None)]+list(mutations(s0,sts['properties']['status'])):
                                m=s0 if path==() else apply(s0,path,val)
                                cands.append((('*',),m))
                        for path,j in cands:
                            pr,po=copy.deepcopy(R),copy.deepcopy(O)
                            if path==('*',): pr['status']=j; po['status']=j
                            else:
                                pr.setdefault('status',{})[path[0]]=j; po.setdefault('status',{})[path[0]]=j
                            total+=1
                            r=real.call('PUT',url+'/'+name+'/'+sub+'?dryRun=All',pr); o=ours.call('PUT',url+'/'+name+'/'+sub+'?dryRun=All',po)
                            report(kind,sub,path,json.dumps(j)[:200],compare(r,o))
                        # From a status that is there to another one.
                        for s0 in STATUS.get(kind,[]) if sub=='status' else []:
                            pr,po=copy.deepcopy(R),copy.deepcopy(O)
                            for x in (pr,po): x['status']=s0; x['metadata'].pop('resourceVersion',None)
                            r=real.call('PUT',url+'/'+name+'/'+sub,pr); o=ours.call('PUT',url+'/'+name+'/'+sub,po)
                            if r[0]!=200 or o[0]!=200:
                                if r[0]==200: real.call('PUT',url+'/'+name+'/'+sub,dict(R,metadata={'name':name}))
                                continue
                            for path,label,val in mutations(s0,sts['properties']['status']):
                                m=apply(s0,path,val); pr,po=copy.deepcopy(r[1]),copy.deepcopy(o[1])
                                pr['status']=m; po['status']=m; total+=1
                                r2=real.call('PUT',url+'/'+name+'/'+sub+'?dryRun=All',pr); o2=ours.call('PUT',url+'/'+name+'/'+sub+'?dryRun=All',po)
                                report(kind,sub+' again',path,label,compare(r2,o2))
                            R,O=r[1],o[1]
                    for path,label,val in mutations(base,sch):
                        if path[0] in('apiVersion','kind') or path==('metadata','name') or path==('metadata',): continue
                        pr=prefixed(R,path,val); po=prefixed(O,path,val)
                        if pr is None or po is None: continue
                        total+=1
                        r=real.call('PUT',url+'/'+name+'/'+sub+'?dryRun=All',pr); o=ours.call('PUT',url+'/'+name+'/'+sub+'?dryRun=All',po)
                        report(kind,sub,path,label,compare(r,o))
            for s in (real,ours):
                d=s.call('DELETE',url+'/'+name+'?gracePeriodSeconds=0')
                c,g,_=s.call('GET',url+'/'+name)
                if c==200: s.call('PATCH',url+'/'+name,{'metadata':{'finalizers':None}},'application/merge-patch+json')
    print('requests',total,'kinds of differences',len(seen))
def made(base):
    """a base on both servers: (url, subresources, object of the real one, of ours)"""
    w=where(base); name=base['metadata'].get('name')
    if not w or not name: return None
    r,o=both('POST',w[0],base)
    if (r[0],o[0])==(201,201): return w[0]+'/'+name,w[1],r[1],o[1]
    if r[0]!=o[0]: print('!! create',base['kind'],name,r[0],o[0],r[1].get('message'),o[1].get('message'))
    if r[0]==201: gone(w[0]+'/'+name,real)
    if o[0]==201: gone(w[0]+'/'+name,ours)
def gone(url,*servers):
    for s in servers or (real,ours):
        s.call('DELETE',url+'?gracePeriodSeconds=0')
        if s.call('GET',url)[0]==200: s.call('PATCH',url,{'metadata':{'finalizers':None}},'application/merge-patch+json')
def cross(kinds):
    """from each base to every other of its kind"""
    total=0; all_=bases(kinds)
    for base in all_:
        others=[x for x in all_ if x is not base and (x['apiVersion'],x['kind'])==(base['apiVersion'],base['kind'])]
        m=made(base) if others else None
        if not m: continue
        url,_,R,O=m
        for x in others:
            for kept in (True,False):
                pr,po=copy.deepcopy(R),copy.deepcopy(O)
                for p in (pr,po):
                    for k in [k for k in p if k not in('apiVersion','kind','metadata','status')]: del p[k]
                    p.update({k:copy.deepcopy(v) for k,v in x.items() if k not in('apiVersion','kind','metadata','status')})
                    # What was given before is often sent along.
                    if kept and isinstance(p.get('spec'),dict):
                        for k,v in (R if p is pr else O).get('spec',{}).items(): p['spec'].setdefault(k,v)
                total+=1
                r=real.call('PUT',url+'?dryRun=All',pr); o=ours.call('PUT',url+'?dryRun=All',po)
                report(base['kind'],'cross',(base['metadata'].get('name'),x['metadata'].get('name'),kept),'',compare(r,o))
        gone(url)
    return total
class Etcd:
    def __init__(s,addr): s.c=http.client.HTTPConnection(addr,timeout=30)
    def call(s,what,body):
        s.c.request('POST','/v3/kv/'+what,json.dumps(body)); return json.loads(s.c.getresponse().read())
    def keys(s,prefix):
        b=lambda x:base64.b64encode(x.encode()).decode()
        a=s.call('range',{'key':b(prefix+'/'),'range_end':b(prefix+'0'),'keys_only':True})
        return [base64.b64decode(k['key']).decode() for k in a.get('kvs',[])]
    def put(s,key,obj): s.call('put',{'key':base64.b64encode(key.encode()).decode(),'value':base64.b64encode(json.dumps(obj).encode()).decode()})
def ratchet(kinds):
    etcd=Etcd(os.environ.get('ETCD','127.0.0.1:2379')); prefix=os.environ.get('OUR_PREFIX','/pintle'); total=0
    for base in bases(kinds):
        base.setdefault('metadata',{}); w=where(base)
        if not w or not base['metadata'].get('name'): continue
        url,subs=w; sch=schema_of(base); refused=[]
        for path,label,val in mutations(base,sch):
            if path[0] in('apiVersion','kind','metadata'): continue
            m=apply(base,path,val)
            if real.call('POST',url+'?dryRun=All',m)[0]==422: refused.append((path,label,val))
        before={p:set(etcd.keys(p)) for p in ('/registry',prefix)}
        m=made(base)
        if not m: continue
        url,subs,R,O=m; name=base['metadata']['name']
        key={}
        for p in before:
            new=[k for k in set(etcd.keys(p))-before[p] if k.endswith('/'+name) and '/events/' not in k or base['kind']=='Event']
            if len(new)==1: key[p]=new[0]
        if len(key)!=2: print('!! keys of',base['kind'],name,key); gone(url); continue
        for path,label,val in refused:
            pr,po=prefixed(R,path,val),prefixed(O,path,val)
            if pr is None or po is None: continue
            for p,obj in (('/registry',pr),(prefix,po)):
                obj=copy.deepcopy(obj); obj['metadata'].pop('resourceVersion',None); etcd.put(key[p],obj)
            r,o=both('GET',url)
            if r[0]!=200 or o[0]!=200: report(base['kind'],'ratchet get',path,label,compare(r,o)); continue
            for op in ['']+[x for x in subs if x=='status']:
                pr,po=copy.deepcopy(r[1]),copy.deepcopy(o[1])
                for x in (pr,po): x['metadata'].setdefault('labels',{})['ratchet']='x'; x['metadata'].setdefault('annotations',{})['ratchet']='x'
                u=url+('/'+op if op else '')+'?dryRun=All'; total+=1
                report(base['kind'],'ratchet '+op,path,label,compare(real.call('PUT',u,pr),ours.call('PUT',u,po)))
        for p,obj in (('/registry',R),(prefix,O)):
            obj=copy.deepcopy(obj); obj['metadata'].pop('resourceVersion',None); etcd.put(key[p],obj)
        gone(url)
    return total
def stable(server,url):
    """the object after the last write, so that no update conflicts"""
    last=None
    while True:
        now=server.call('GET',url)[1]
        if last==now: return now
        last=now; time.sleep(.4)
def deepjunk(ps):
    out=junk(ps)
    s,_=deref(ps)
    if s.get('type')=='array':
        it,_=deref(s['items'])
        if 'properties' in it:
            full={k:(junk(v) or [None])[-1] for k,v in it['properties'].items()}
            out.append([full])
            for k,v in it['properties'].items():
                for j in junk(v): out.append([dict(full,**{k:j})])
    return out
def prefixed(o,path,val):
    try: return apply(o,path,val)
    except (KeyError,IndexError,TypeError): return None
STATUS=yaml.load(open(os.path.join(HERE,'status.yaml')),Loader=L)
if __name__=='__main__':
    ops=sys.argv[1].split(',') if len(sys.argv)>1 else ['create']
    if ops==['all']: ops=['create','update','status']
    hunt(ops,set(sys.argv[2:]))
