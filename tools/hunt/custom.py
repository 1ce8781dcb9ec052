"""Changes custom objects one thing at a time, on kube-apiserver and on Pintle, by update, merge patch and apply, of the
object and of its status, and prints where the answers differ.

usage: custom.py   (servers as for hunt.py; some ten minutes)
"""
from hunt import *
D='/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
G='ohunt.example.com'
SPEC={'type':'object','required':['colour'],'x-kubernetes-validations':[
 {'rule':'!has(self.count) || self.count <= 10','message':'too many','reason':'FieldValueForbidden','fieldPath':'.count'},
 {'rule':'oldSelf.colour == self.colour','messageExpression':"'not ' + self.colour"},
 {'rule':'!has(oldSelf.born) || has(self.born)','message':'born stays'}],
 'properties':{
  'colour':{'type':'string','enum':['white','grey'],'minLength':1,'maxLength':10,'pattern':'^[a-z]+$'},
  'count':{'type':'integer','format':'int32','minimum':0,'maximum':20,'default':1},
  'weight':{'type':'number','multipleOf':0.5,'exclusiveMinimum':True,'minimum':0},
  'born':{'type':'string','format':'date-time'},
  'ip':{'type':'string','format':'ipv4'},
  'tags':{'type':'array','x-kubernetes-list-type':'set','maxItems':5,'items':{'type':'string','maxLength':5}},
  'rings':{'type':'array','maxItems':4,'x-kubernetes-list-type':'map','x-kubernetes-list-map-keys':['leg'],'items':{'type':'object','required':['leg'],'x-kubernetes-validations':[{'rule':'!has(self.code) || self.code == oldSelf.code || self.leg == "left"'}],'properties':{'leg':{'type':'string','maxLength':9},'code':{'type':'string','nullable':True,'maxLength':9},'n':{'type':'integer','default':3}}}},
  'notes':{'type':'object','additionalProperties':{'type':'string','maxLength':30},'maxProperties':3},
  'port':{'x-kubernetes-int-or-string':True},
  'any':{'type':'object','x-kubernetes-preserve-unknown-fields':True},
  'nul':{'type':'object','nullable':True,'properties':{'a':{'type':'string','default':'x'}}},
  'choice':{'type':'object','properties':{'a':{'type':'string'},'b':{'type':'string'}},'oneOf':[{'required':['a']},{'required':['b']}]},
  'template':{'type':'object','x-kubernetes-embedded-resource':True,'properties':{'spec':{'type':'object','properties':{'x':{'type':'integer'}}}}},
  'raw':{'type':'object','x-kubernetes-embedded-resource':True,'x-kubernetes-preserve-unknown-fields':True},
  'nest':{'type':'array','items':{'type':'object','properties':{'l':{'type':'array','items':{'type':'integer'}},'m':{'type':'object','x-kubernetes-map-type':'atomic','properties':{'k':{'type':'string'}}}}}},
 }}
STATUSS={'type':'object','properties':{'count':{'type':'integer','default':0},'selector':{'type':'string'},'phase':{'type':'string','enum':['A','B']},'conds':{'type':'array','x-kubernetes-list-type':'map','x-kubernetes-list-map-keys':['type'],'items':{'type':'object','required':['type'],'properties':{'type':{'type':'string'},'status':{'type':'string','default':'Unknown'}}}}},
 'x-kubernetes-validations':[{'rule':"self.phase != 'B' || oldSelf.phase == 'A' || oldSelf.phase == 'B'",'message':'B only after A'}],'required':['phase']}
def crd(plural,kind,subs=True,scope='Namespaced',root={}):
    v={'name':'v1','served':True,'storage':True,'schema':{'openAPIV3Schema':dict({'type':'object','required':['spec'],'properties':{'spec':SPEC,'status':STATUSS}},**root)}}
    if subs: v['subresources']={'status':{},'scale':{'specReplicasPath':'.spec.count','statusReplicasPath':'.status.count','labelSelectorPath':'.status.selector'}}
    v['selectableFields']=[{'jsonPath':'.spec.colour'}]
    return {'apiVersion':'apiextensions.k8s.io/v1','kind':'CustomResourceDefinition','metadata':{'name':plural+'.'+G},'spec':{'group':G,'scope':scope,'names':{'plural':plural,'kind':kind},'versions':[v]}}
base={'spec':{'colour':'white','count':2,'weight':1.5,'born':'2020-01-01T00:00:00Z','ip':'1.2.3.4','tags':['a','b'],'rings':[{'leg':'left','code':'x'},{'leg':'right','code':'y'}],'notes':{'a':'b'},'port':80,'any':{'z':[1,{'q':None}]},'nul':{'a':'q'},'choice':{'a':'1'},
 'template':{'apiVersion':'v1','kind':'Pod','metadata':{'name':'t','labels':{'a':'b'}},'spec':{'x':1}},'raw':{'apiVersion':'v1','kind':'X','metadata':{'name':'r','bogus':1},'more':{'y':1}},'nest':[{'l':[1,2],'m':{'k':'v'}},{'l':[3]}]},
 'status':{'phase':'A','count':1,'conds':[{'type':'x','status':'True'}]}}
STRAY=[None,'text',5,1.5,True,[],{},[None],{'a':None},[[]],'']
def muts(v,s,path=()):
    yield from mutations(v,s,path)
    for st in STRAY: yield path,'='+json.dumps(st),st
    if isinstance(v,dict):
        for k,x in v.items(): yield from strays(x,path+(k,))
        for k,ps in s.get('properties',{}).items():
            if k not in v: yield path+(k,),'=null',None
        yield path+('unknown',),'unknown',{'a':1}
def strays(v,path):
    for st in STRAY: yield path,'='+json.dumps(st),st
    if isinstance(v,dict):
        for k,x in v.items(): yield from strays(x,path+(k,))
        yield path+('unknown',),'unknown',{'a':1}
    if isinstance(v,list):
        for i,x in enumerate(v): yield from strays(x,path+(i,))
def run():
    total=0
    for plural,kind,subs in (('hawks','Hawk',True),('kites','Kite',False)):
        d=crd(plural,kind,subs); P='/apis/%s/v1/namespaces/default/%s'%(G,plural)
        for s in (real,ours):
            c=s.call('POST',D,d)
            if c[0]!=201: print('!!',c[1].get('message')); return
            while s.call('GET',P)[0]!=200: time.sleep(.2)
        time.sleep(2)
        sch=d['spec']['versions'][0]['schema']['openAPIV3Schema']
        b=copy.deepcopy(base); b.update(apiVersion=G+'/v1',kind=kind,metadata={'name':'a'})
        r,o=both('POST',P,b); report(kind,'create',(),'',compare(r,o))
        if subs:
            st=copy.deepcopy(r[1]); st['status']=b['status']; so=copy.deepcopy(o[1]); so['status']=b['status']
            r=real.call('PUT',P+'/a/status',st); o=ours.call('PUT',P+'/a/status',so); report(kind,'status',(),'',compare(r,o))
        R,O=r[1],o[1]
        if r[0]>=400: print(r); return
        for fv in ('','&fieldValidation=Strict'):
          for part,sub in (('spec',''),('status',''))+((('status','/status'),('spec','/status')) if subs else ()):
            for path,label,val in muts(base[part],sch['properties'][part],(part,)):
                try: pr,po=apply(R,path,val),apply(O,path,val)
                except (KeyError,IndexError,TypeError): continue
                total+=1
                r=real.call('PUT',P+'/a'+sub+'?dryRun=All'+fv,pr); o=ours.call('PUT',P+'/a'+sub+'?dryRun=All'+fv,po)
                report(kind,'put '+part+sub+fv,path,label,compare(r,o))
                if not fv and val is not DELETE:
                    m=val
                    for p in reversed(path):
                        if isinstance(p,int): m=None; break
                        m={p:m}
                    if m is not None:
                        total+=1
                        r,o=both('PATCH',P+'/a'+sub+'?dryRun=All',m,ct='application/merge-patch+json')
                        report(kind,'merge '+part+sub,path,label,compare(r,o))
                    am={'apiVersion':G+'/v1','kind':kind,'metadata':{'name':'a'}}
                    if m is not None:
                        am.update(m); total+=1
                        r,o=both('PATCH',P+'/a'+sub+'?dryRun=All&force=true&fieldManager=h',am,ct='application/apply-patch+yaml')
                        report(kind,'apply '+part+sub,path,label,compare(r,o))
    for s in (real,ours):
        for n in ('hawks','kites'): s.call('DELETE',D+'/'+n+'.'+G)
    print('requests',total,'kinds of differences',len(seen))
if __name__=='__main__': run()
