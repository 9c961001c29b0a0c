# Makes starts.csv in the current directory: scx_lavd (1.1.4) under loads that begin in three ways. warmcore and scx_lavd are in PATH.
import json,subprocess,csv,re,sys
W='warmcore'
P=[("p0",1000),("p1",3500),("p2",6000),("p3",8500)]
def tasks(kind, start):
    t={}
    def add(name,n,delay,body):
        if start=="released": t[name]={"instance":n,"loop":1,"phases":{"a":{"loop":1,"barrier":"go","sleep":max(delay,1)},"b":{"loop":-1,**body}}}
        else: t[name]={"instance":n,"loop":-1,"delay":delay+(1000000 if start=="timers" else 0),**body}
    if kind=="sleepers":
        for name,d in P: add(name,2,d,{"run":2000,"timer":{"ref":"unique","period":10000}})
        add("spinner",6,0,{"run":100000})
    else: add("spinner",12,0,{"run":100000})
    if start=="released": t["main"]={"instance":1,"loop":1,"phases":{"x":{"loop":1,"sleep":1000000,"barrier":"go"}}}
    return {"tasks":t,"global":{"duration":3 if start!="at once" else 2}}
out=csv.writer(open('starts.csv','w')); out.writerow(["arguments","load","start","seed","busy share","run delay, s","mean wakeup, us"])
for args in ("--per-cpu-dsq",""):
  for kind in ("sleepers","spinners"):
    for start in ("at once","timers","released"):
        json.dump(tasks(kind,start),open('w.json','w'))
        for seed in range(1,9):
            r=subprocess.run([W,"sim","-m","1s1n2l4c1t","-w","w.json","-s",f"scx:scx_lavd {args}".strip(),"--seed",str(seed),"--warm-up","700ms" if start=="at once" else "1700ms","--json"],capture_output=True,text=True)
            if r.returncode: print(args,kind,start,seed,r.stderr[-300:]); continue
            d=json.loads(r.stdout); m=d["measures"] if "measures" in d else d
            def val(name):
                v=m.get(name); 
                return v if not isinstance(v,dict) else v.get("value")
            out.writerow([args,kind,start,seed,*(f"{x:.4g}" if x is not None else "" for x in (val("busy_share"),val("run_delay_ns") and val("run_delay_ns")/1e9,val("wakeup_mean_ns") and val("wakeup_mean_ns")/1e3))]); 
    
