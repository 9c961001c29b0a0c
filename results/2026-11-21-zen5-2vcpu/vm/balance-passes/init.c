#define _GNU_SOURCE
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/reboot.h>
#include <sys/sysmacros.h>
#include <dirent.h>
static int out=1;
static void say(const char*f,...){char b[4096];va_list a;__builtin_va_start(a,f);int n=vsnprintf(b,sizeof b,f,a);__builtin_va_end(a);int o=0;while(o<n){int w=write(out,b+o,n-o);if(w<=0)break;o+=w;}}
static int wr(const char*p,const char*s){int f=open(p,O_WRONLY|O_TRUNC);if(f<0){say("!open %s %d\n",p,errno);return -1;}int r=write(f,s,strlen(s));if(r<0)say("!write %s <%s> %d\n",p,s,errno);close(f);return r<0?-1:0;}
static void app(const char*p,const char*s){int f=open(p,O_WRONLY|O_APPEND);int r=f<0?-1:write(f,s,strlen(s));if(r<0)say("!append %s <%s> %d\n",p,s,errno);close(f);}
static void dump(const char*p){static char b[1<<16];int f=open(p,O_RDONLY);if(f<0){say("!dump %s %d\n",p,errno);return;}say("=== %s\n",p);int n;while((n=read(f,b,sizeof b))>0){int o=0;while(o<n){int w=write(out,b+o,n-o);if(w<=0)break;o+=w;}}close(f);say("\n");}
static long now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1000000000L+t.tv_nsec;}
static volatile int stop;static int tids[4096];
static void*spin(void*a){tids[(long)a]=gettid();while(!stop){for(int i=0;i<2000;i++)__asm__ volatile("");__asm__ volatile("pause");}return 0;}
static long cpu_now(void){struct timespec t;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&t);return t.tv_sec*1000000000L+t.tv_nsec;}
static void*periodic(void*a){tids[(long)a]=gettid();long next=now();while(!stop){long e=cpu_now()+2000000;while(cpu_now()<e){for(int i=0;i<1500;i++)__asm__ volatile("");__asm__ volatile("pause");}next+=10000000;struct timespec t={next/1000000000,next%1000000000};clock_nanosleep(CLOCK_MONOTONIC,TIMER_ABSTIME,&t,0);}return 0;}
static void*idlespin(void*a){struct sched_param p={0};sched_setscheduler(0,SCHED_IDLE,&p);return spin(a);}
static void ms(long n){struct timespec t={n/1000,n%1000*1000000L};nanosleep(&t,0);}
#define T "/sys/kernel/tracing/"
static int N=128;static char cmd[4096];static int opt(const char*k,int d){char*p=strstr(cmd,k);return p?atoi(p+strlen(k)):d;}
int main(int c,char**v){
 mkdir("/proc",0755);mkdir("/sys",0755);mkdir("/dev",0755);mount("p","/proc","proc",0,0);mount("s","/sys","sysfs",0,0);mount("d","/dev","devtmpfs",0,0);mount("d","/sys/kernel/debug","debugfs",0,0);mount("t","/sys/kernel/tracing","tracefs",0,0);
 int con=open("/dev/ttyS0",O_WRONLY);if(con>=0)out=con;
 for(int i=0;i<100;i++){int f=open("/dev/vport1p1",O_WRONLY);if(f<0)f=open("/dev/vport0p1",O_WRONLY);if(f<0)f=open("/dev/vport2p1",O_WRONLY);if(f>=0){out=f;break;}ms(50);}
 int f=open("/proc/cmdline",O_RDONLY);read(f,cmd,4095);close(f);
 int probes=!!strstr(cmd,"bal.probes");N=opt("bal.n=",128);int pin=opt("bal.pin=",1),cas=opt("bal.cas=",0),before=opt("bal.before=",200),after=opt("bal.after=",650);
 say("start %ld probes %d\n",now(),probes);
 wr("/sys/kernel/debug/sched/llc_balancing/enabled",cas?"1":"0");
 wr("/proc/sys/kernel/sched_schedstats","1");
 wr(T"trace_clock","mono");wr(T"buffer_size_kb","4096");
 wr(T"events/irq/softirq_entry/filter","vec==7");wr(T"events/irq/softirq_exit/filter","vec==7");
 if(probes){
  app(T"kprobe_events","p:k/bal sched_balance_rq cpu=this_cpu idle=idle w=sd->span_weight\n");
  app(T"kprobe_events","p:k/det can_migrate_task src=env->src_cpu dst=env->dst_cpu failed=env->sd->nr_balance_failed imb=env->imbalance mt=env->migration_type pid=p->pid v=p->se.vruntime\n");app(T"kprobe_events","r:k/detr can_migrate_task ok=$retval\n");app(T"kprobe_events","r:k/balr sched_balance_rq moved=$retval\n");
  wr(T"events/k/enable","1");
 }
 wr(T"events/irq/softirq_entry/enable","1");wr(T"events/irq/softirq_exit/enable","1");wr(T"events/sched/sched_migrate_task/enable","1");
 dump("/proc/schedstat");
 cpu_set_t one,all;CPU_ZERO(&one);CPU_SET(0,&one);CPU_ZERO(&all);for(int i=0;i<1024;i++)CPU_SET(i,&all);
 wr(T"trace","");
 ms(1200);
 static pthread_t th[4096];
 pthread_attr_t at;pthread_attr_init(&at);if(pin)pthread_attr_setaffinity_np(&at,sizeof one,&one);pthread_attr_setstacksize(&at,65536);
 long a=now();for(long i=0;i<N;i++)if(pthread_create(&th[i],&at,opt("bal.idle=",0)?(i<8?idlespin:periodic):spin,(void*)i))say("!create\n");
 say("made in %ld\n",now()-a);
 ms(before);
 dump("/proc/schedstat");
 say("release %ld\n",a=now());
 if(pin)for(int i=0;i<N;i++)sched_setaffinity(tids[i],sizeof all,&all);
 say("released in %ld\n",now()-a);
 ms(after);
 wr(T"tracing_on","0");say("end %ld\n",now());
 stop=1;
 dump("/proc/schedstat");
 dump("/sys/kernel/debug/sched/debug");
 dump(T"trace");
 say("done\n");sync();ms(500);reboot(RB_POWER_OFF);return 0;}
