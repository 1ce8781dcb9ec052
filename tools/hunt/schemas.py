"""Makes random structural schemas and random objects for them, on kube-apiserver and on Pintle; then changes the schema, or
adds a version, and reads and writes what is stored. Prints where the answers differ, with SHOW=1 also on what.

usage: schemas.py   (servers as for hunt.py; SEED, SECONDS)
"""
import random
from hunt import *
D='/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
G='rhunt.example.com'
rnd=random.Random(int(os.environ.get('SEED','1')))
NAMES=['a','b','c','d']
def scalar():
    k=rnd.choice(['string','integer','number','boolean','ios'])
    if k=='ios': s={'x-kubernetes-int-or-string':True}
    else: s={'type':k}
    if k=='string':
        if rnd.random()<.3: s['maxLength']=rnd.choice([1,3])
        if rnd.random()<.2: s['pattern']='^[a-z]*$'
        if rnd.random()<.2: s['enum']=['x','yy','']
        if rnd.random()<.2: s['format']=rnd.choice(['date-time','ipv4','byte','uuid','duration','int32','nope'])
    if k in('integer','number'):
        if rnd.random()<.3: s['minimum']=rnd.choice([0,1,-2]); 
        if 'minimum' in s and rnd.random()<.4: s['exclusiveMinimum']=True
        if rnd.random()<.2: s['maximum']=5
        if rnd.random()<.2: s['multipleOf']=rnd.choice([2,0.5]) if k=='number' else 2
        if rnd.random()<.2: s['format']=rnd.choice(['int32','int64']) if k=='integer' else rnd.choice(['float','double'])
    if rnd.random()<.25: s['nullable']=True
    if rnd.random()<.35:
        s['default']={'string':rnd.choice(['x','yy','q']),'integer':rnd.choice([0,2,9]),'number':rnd.choice([0.5,2,4]),'boolean':True,'ios':rnd.choice([1,'1'])}[k]
    return s
def schema(depth=0):
    r=rnd.random()
    if depth>=3 or r<.45: return scalar()
    if r<.65:
        s={'type':'array','items':schema(depth+1)}
        if rnd.random()<.3: s['maxItems']=rnd.choice([1,2])
        it=s['items']
        if it.get('type')=='object' and it.get('properties') and rnd.random()<.5 and not it.get('nullable'):
            ks=[k for k,v in it['properties'].items() if v.get('type') in('string','integer','boolean') and not v.get('nullable')]
            if ks:
                s['x-kubernetes-list-type']='map'; s['x-kubernetes-list-map-keys']=ks[:1]
                if 'default' not in it['properties'][ks[0]]: it.setdefault('required',[]); it['required']=sorted(set(it['required']+ks[:1]))
        elif it.get('type') in('string','integer') and rnd.random()<.4 and not it.get('nullable'): s['x-kubernetes-list-type']='set'
    elif r<.75:
        s={'type':'object','additionalProperties':schema(depth+1)}
        if rnd.random()<.3: s['maxProperties']=1
    elif r<.82: s={'type':'object','x-kubernetes-preserve-unknown-fields':True}
    elif r<.87:
        s={'type':'object','x-kubernetes-embedded-resource':True,'properties':{'spec':schema(depth+1)}}
        if rnd.random()<.5: s['x-kubernetes-preserve-unknown-fields']=True
    else:
        s={'type':'object','properties':{n:schema(depth+1) for n in rnd.sample(NAMES,rnd.randint(1,3))}}
        if rnd.random()<.3: s['required']=[rnd.choice(list(s['properties']))]
        if rnd.random()<.2: s['x-kubernetes-preserve-unknown-fields']=True
        if rnd.random()<.2: s['anyOf']=[{'required':['a']},{'properties':{'b':{'minLength':1}}}] if 'b' in s['properties'] else [{'required':['a']}]
        if rnd.random()<.15: s['x-kubernetes-map-type']='atomic'
        if rnd.random()<.2: s['default']={}
    if rnd.random()<.2: s['nullable']=True
    return s
VALS=[None,'','x','yy','ABC','2020-01-01T00:00:00Z','1.2.3.4',0,1,2,3,7,-1,2**40,0.5,2.0,4.5,True,False,[],{},[None],{'a':1}]
def value(s,depth=0):
    if rnd.random()<.12: return rnd.choice(VALS)
    t=s.get('type')
    if 'enum' in s and rnd.random()<.7: return rnd.choice(s['enum'])
    if t=='string' or s.get('x-kubernetes-int-or-string'): return rnd.choice(['','x','yy','zzz','2020-01-01T00:00:00Z','1.2.3.4','aGk=',5 if s.get('x-kubernetes-int-or-string') else 'w'])
    if t=='integer': return rnd.choice([0,1,2,3,4,6,-2,2**33])
    if t=='number': return rnd.choice([0,0.5,1,2.5,4,6,-2])
    if t=='boolean': return rnd.choice([True,False])
    if t=='array': return [value(s['items'],depth+1) for _ in range(rnd.randint(0,3))]
    if t=='object':
        if s.get('x-kubernetes-embedded-resource'):
            o={'apiVersion':'v1','kind':'Pod','metadata':rnd.choice([{'name':'x'},{'name':'x','labels':{'a':'b'},'zz':1},{'name':5},{},{'name':'A b'},None,{'labels':{'a':1}}])}
            if rnd.random()<.2: o.pop(rnd.choice(list(o)))
            if 'spec' in s['properties'] and rnd.random()<.7: o['spec']=value(s['properties']['spec'],depth+1)
            if rnd.random()<.3: o['stray']={'q':1}
            return o
        o={}
        for k,p in s.get('properties',{}).items():
            if rnd.random()<.7: o[k]=value(p,depth+1)
        if isinstance(s.get('additionalProperties'),dict):
            for k in rnd.sample(NAMES,rnd.randint(0,2)): o[k]=value(s['additionalProperties'],depth+1)
        if rnd.random()<.25: o['stray']=rnd.choice(VALS)
        return o
    return rnd.choice(VALS)
def crd(n,versions): return {'apiVersion':'apiextensions.k8s.io/v1','kind':'CustomResourceDefinition','metadata':{'name':'r%ds.%s'%(n,G)},'spec':{'group':G,'scope':'Namespaced','names':{'plural':'r%ds'%n,'kind':'R%d'%n},'versions':versions}}
def ver(name,s,storage): return {'name':name,'served':True,'storage':storage,'schema':{'openAPIV3Schema':{'type':'object','properties':{'spec':s}}}}
_compare=compare
def compare(r,o):
    """Go reports the members of an object in a random order"""
    return [x for x in _compare(r,o) if not x.startswith("order")]
def run():
    end=time.time()+float(os.environ.get('SECONDS','150')); total=0; n=int(os.environ.get('FIRST','0')); accepted=0
    while time.time()<end:
        n+=1; s1={'type':'object','properties':{k:schema() for k in NAMES[:3]}}
        d=crd(n,[ver('v1',s1,True)])
        r,o=both('POST',D,d); total+=1
        report('CRD','create',(n,),json.dumps(s1)[:0],compare(r,o))
        if compare(r,o) and os.environ.get('SHOW'): print(json.dumps(s1))
        if r[0]!=201 or o[0]!=201:
            for s,x in ((real,r),(ours,o)):
                if x[0]==201: s.call('DELETE',D+'/'+d['metadata']['name'])
            continue
        accepted+=1
        P='/apis/%s/v1/namespaces/default/r%ds'%(G,n)
        for s in (real,ours):
            while s.call('GET',P)[0]!=200: time.sleep(.05)
        objs=[]
        for i in range(25):
            b={'apiVersion':G+'/v1','kind':'R%d'%n,'metadata':{'name':'o%d'%i},'spec':value(s1)}
            q='?fieldValidation='+rnd.choice(['Strict','Warn','Ignore'])
            r,o=both('POST',P+q,b); total+=1; dd=compare(r,o)
            report('R','create '+q,(n,i),json.dumps(b['spec'])[:150],dd)
            if dd and os.environ.get('SHOW'): print('   schema',json.dumps(s1)); print('   object',json.dumps(b['spec']))
            if r[0]==201 and o[0]==201: objs.append((i,b))
        # A stricter or looser schema, a second version: what is stored is read by it, and ratchets.
        s2=copy.deepcopy(s1)
        for k in list(s2['properties']):
            if rnd.random()<.5: s2['properties'][k]=schema()
        if rnd.random()<.5: s2['properties']['e']=scalar()
        two=rnd.random()<.4
        upd=[ver('v1',s1 if two else s2,True)]+([ver('v2',s2,False)] if two else [])
        ok=True
        for s in (real,ours):
            c=s.call('PATCH',D+'/'+d['metadata']['name'],{'spec':{'versions':upd}},ct='application/merge-patch+json')
            ok=ok and c[0]==200
        if ok:
            v='v2' if two else 'v1'; Q=P.replace('/v1/','/%s/'%v)
            time.sleep(.3)
            for s in (real,ours):
                while s.call('GET',Q)[0]!=200: time.sleep(.05)
            time.sleep(2.0)
            for i,b in objs:
                r,o=both('GET',Q+'/o%d'%i); total+=1; dd=compare(r,o)
                report('R','read '+v,(n,i),'',dd)
                if dd and os.environ.get('SHOW'): print('   s1',json.dumps(s1),'\n   s2',json.dumps(s2)); print('   object',json.dumps(b['spec']))
                if r[0]!=200 or o[0]!=200: continue
                for what in ('label','spec'):
                    pr,po=copy.deepcopy(r[1]),copy.deepcopy(o[1])
                    if what=='label': pr['metadata']['labels']={'x':'y'}; po['metadata']['labels']={'x':'y'}
                    else:
                        k=rnd.choice(list(s2['properties'])); val=value(s2['properties'][k])
                        if not isinstance(pr.get('spec'),dict) or not isinstance(po.get('spec'),dict): continue
                        pr['spec'][k]=val; po['spec'][k]=val
                    a=real.call('PUT',Q+'/o%d?dryRun=All'%i,pr); c=ours.call('PUT',Q+'/o%d?dryRun=All'%i,po); total+=1; dd=compare(a,c)
                    report('R','put '+what,(n,i),'',dd)
                    if dd and os.environ.get('SHOW'): print('   s1',json.dumps(s1),'\n   s2',json.dumps(s2)); print('   put',json.dumps(pr['spec']))
        for s in (real,ours): s.call('DELETE',D+'/'+d['metadata']['name'])
    print('requests',total,'definitions',accepted,'kinds of differences',len(seen))
if __name__=='__main__': run()
