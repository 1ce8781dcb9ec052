"""Mutates the bases, asks the real server, and writes cases for tests/validation: object (+ patch, subresource) and error; or, if
DEST ends with .tsv, a line for each: base, operation, path and value of what was changed, error."""
import sys,copy,json,re
from hunt import *
def jd(x): return json.dumps(x,ensure_ascii=False)
def merge_patch(path,val):
    """as a merge patch; a path through a list is the whole list"""
    return path,val
def to_patch(obj,path,val):
    m=apply(obj,path,val)
    # find first list on the way
    t=obj; keys=[]
    for p in path:
        if isinstance(t,list): break
        keys.append(p); t=t.get(p) if isinstance(t,dict) else None
    last=m
    for k in keys:
        if not isinstance(last,dict) or k not in last: last=None; break
        last=last[k]
    out=last
    for k in reversed(keys): out={k:out}
    return out
def text(code,ans):
    if code in(200,201): return ''
    if code==422 and ' is invalid: ' in ans['message']:
        t=ans['message'].split(' is invalid: ',1)[1]
        return t
    return f'{code} {ans.get("reason")}: {ans.get("message")}'
def shape(e): return re.sub(r'\d+','N',re.sub(r'"(\\.|[^"\\])*"','""',e))[:200]
out={}; seen=set()
ops=sys.argv[1].split(','); kinds=set(sys.argv[2:])
total=0
lines=[]
def line(base,op,path,val,err):
    value='-' if val is DELETE else jd(val)
    lines.append('\t'.join([base['kind']+'/'+base['metadata']['name'],op,jd(list(path)),value,jd(err)]))
def add(kind,case,err,force=False):
    k=(kind,case.get('subresource'),'patch' in case,shape(err))
    if err[:3].isdigit() and not force: return
    if re.search(r'Invalid value: \[?\{"[A-Z]|patch: Invalid value|admin access|Invalid value: \[\]|: \{\}: supported|\{"(name|labels|annotations)":.*"Spec"|InternalError|resourceVersion|creationTimestamp',err): return   # Go structs, CEL
    n=sum(1 for s in seen if s==k)
    if k in seen and not os.environ.get('ALL'): return
    seen.add(k)
    out.setdefault(kind,[]).append((case,err))
    return True
for base in bases(kinds):
    w=where(base)
    if not w: continue
    url,subs=w; kind=base['kind']; sch=schema_of(base)
    base=copy.deepcopy(base); base.setdefault('metadata',{}).setdefault('name','x')
    if 'create' in ops:
        for path,label,val in [((),'',None)]+list(mutations(base,sch)):
            if path and path[0] in('apiVersion','kind'): continue
            if path==('metadata',) : continue
            m=base if not path else apply(base,path,val)
            c,a,w2=real.call('POST',url+'?dryRun=All',m); total+=1
            if add(kind,{'object':m},text(c,a)) and path: line(base,'create',path,val,text(c,a))
    if 'update' in ops or 'status' in ops:
        name=base['metadata']['name']
        c,R,_=real.call('POST',url,base)
        if c!=201: print('!!',kind,name,R.get('message')); continue
        def run(sub,patch,path=(),val=None):
            global total; total+=1
            c,a,_=real.call('PATCH',url+'/'+name+sub+'?dryRun=All',patch,'application/merge-patch+json')
            d={'object':base,'patch':patch}
            if sub: d['subresource']=sub[1:]
            if add(kind,d,text(c,a)):
                if not path: path,val=('status',),patch.get('status')
                line(base,sub[1:] or 'update',path,val,text(c,a))
        if 'update' in ops:
            for path,label,val in mutations(base,sch):
                if path[0] in('apiVersion','kind','metadata'): continue
                run('',to_patch(base,path,val),path,val)
        if 'status' in ops:
            for sub in subs:
                if sub not in('status','approval','resize','ephemeralcontainers','finalize'): continue
                sts,_=deref(sch)
                if sub in('status','approval') and 'status' in sts['properties']:
                    st,_=deref(sts['properties']['status'])
                    for k,ps in st.get('properties',{}).items():
                        for j in deepjunk(ps): run('/'+sub,{'status':{k:j}})
                    for s0 in STATUS.get(kind,[]):
                        for path,label,val in [((),'',None)]+list(mutations(s0,sts['properties']['status'])):
                            run('/'+sub,{'status':s0 if path==() else apply(s0,path,val)})
                if sub in('resize','ephemeralcontainers'):
                    for path,label,val in mutations(base,sch):
                        if path[0] in('apiVersion','kind','metadata'): continue
                        run('/'+sub,to_patch(base,path,val),path,val)
        real.call('DELETE',url+'/'+name+'?gracePeriodSeconds=0')
        c,g,_=real.call('GET',url+'/'+name)
        if c==200: real.call('PATCH',url+'/'+name,{'metadata':{'finalizers':None}},'application/merge-patch+json')
dest=os.environ.get('DEST','cases.yaml')
docs=[]
for kind,cs in out.items():
    for case,err in cs:
        docs.append('\n'.join([k+': '+jd(case[k]) for k in('object','patch','subresource') if k in case]+['error: '+jd(err)])+'\n')
open(dest,'w').write('\n'.join(lines)+'\n' if dest.endswith('.tsv') else '---\n'.join(docs))
print('requests',total,'cases',len(docs))
