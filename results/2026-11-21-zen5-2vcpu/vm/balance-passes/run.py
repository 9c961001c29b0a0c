import sys,subprocess,os,stat
init,outp,shift=sys.argv[1],sys.argv[2],sys.argv[3]; extra=sys.argv[4] if len(sys.argv)>4 else ''
topo=sys.argv[5] if len(sys.argv)>5 else '64'
def ent(name,data,mode,ino,rdev=(0,0)):
    n=name.encode()+b'\0'; h='070701'+''.join('%08x'%x for x in [ino,mode,0,0,1,0,len(data),0,0,rdev[0],rdev[1],len(n),0])
    b=h.encode()+n; b+=b'\0'*(-len(b)%4); b+=data; b+=b'\0'*(-len(b)%4); return b
a=ent('dev',b'',0o40755,1)+ent('dev/console',b'',0o20600,2,(5,1))+ent('init',open(init,'rb').read(),0o100755,3)+ent('TRAILER!!!',b'',0,4)
open(outp+'.cpio','wb').write(a)
k=os.path.expanduser('~/.cache/warmcore/kernels/7.2.13+deb14-cloud-amd64')
img=subprocess.run(['find',k,'-name','vmlinuz*','-o','-name','bzImage'],capture_output=True,text=True).stdout.split()[0]
if topo=='64':
    mem=1600; smp='64,sockets=8,dies=1,cores=8,threads=1'
    numa=['-object','memory-backend-ram,id=m0,size=800M','-numa','node,nodeid=0,cpus=0-31,memdev=m0','-object','memory-backend-ram,id=m1,size=800M','-numa','node,nodeid=1,cpus=32-63,memdev=m1','-numa','dist,src=0,dst=1,val=20','-numa','dist,src=1,dst=0,val=20']
else:
    s,c,*t=topo.split('x'); t=t[0] if t else 1; mem=600; smp=f'{int(s)*int(c)*int(t)},sockets={s},dies=1,cores={c},threads={t}'; numa=[]
cmd=['qemu-system-x86_64','-nodefaults','-no-user-config','-display','none','-no-reboot','-machine','q35','-accel','tcg,thread=single','-cpu','max,la57=off','-icount',f'shift={shift},sleep=off','-rtc','clock=vm,base=2026-01-01','-smp',smp,'-m',f'{mem}M',*numa,'-kernel',img,'-initrd',outp+'.cpio','-append','console=ttyS0 panic=-1 oops=panic mitigations=off tsc=reliable transparent_hugepage=never nowatchdog random.trust_cpu=on quiet loglevel=4 '+extra,'-serial','file:'+outp+'.console','-chardev','file,id=f,path='+outp,'-device','virtio-serial-pci','-device','virtserialport,chardev=f,name=x']
sys.exit(subprocess.run(['timeout','900']+cmd).returncode)
