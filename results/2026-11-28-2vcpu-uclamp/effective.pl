sub put { my ($f,$v)=@_; open(my $h,'>',$f) or return print("open $f: $!\n"); syswrite($h,$v) or print("write $f $v: $!\n"); close $h; }
sub get { my ($f)=@_; open(my $h,'<',$f) or return "open $f: $!"; my $t=join('',<$h>); chomp $t; $t }
sub show { print "$_[0]: "; for (split /\n/, get("/proc/self/sched")) { if (/^(.*uclamp\.\w+)\s*:\s*(\d+)/) { my ($k,$v)=($1,$2); $k=~s/\s+$//; print "$k=$v " } } print "\n"; }
my $r="/sys/fs/cgroup";
put("$r/cgroup.subtree_control","+cpu");
mkdir "$r/a"; put("$r/a/cgroup.subtree_control","+cpu"); mkdir "$r/a/b";
sub attr { my ($flags,$min,$max,$policy,$prio)=@_; my $s=pack("LLQlLQQQLL",56,$policy||0,$flags,0,$prio||0,0,0,0,$min,$max); my $x=syscall(314,0,$s,0); print "setattr flags $flags $min $max policy ".($policy||0).": ".($x==0?"ok":"$!")."\n"; }
show("begin");
attr(0x60,100,300); show("100,300 root");
put("$r/a/b/cgroup.procs",$$);
show("in a/b unbounded");
put("$r/a/b/cpu.uclamp.min","40");
print "b.min ",get("$r/a/b/cpu.uclamp.min")," a.min ",get("$r/a/cpu.uclamp.min")," a.max ",get("$r/a/cpu.uclamp.max"),"\n";
show("b.min 40, a silent");
put("$r/a/cpu.uclamp.min","25"); show("b.min 40, a.min 25");
put("$r/a/cpu.uclamp.max","50"); put("$r/a/b/cpu.uclamp.min","10"); put("$r/a/b/cpu.uclamp.max","20"); show("a 25-50, b 10-20");
attr(0x60,0,1024); show("ask 0,1024");
attr(0x60,150,160); show("ask 150,160");
put("$r/a/cpu.uclamp.max","99.97"); print "a.max ",get("$r/a/cpu.uclamp.max"),"\n";
put("$r/a/b/cpu.uclamp.max","100.01"); put("$r/a/b/cpu.uclamp.max","-1");put("$r/a/b/cpu.uclamp.min","0.05"); print "b.min ",get("$r/a/b/cpu.uclamp.min"),"\n"; show("b.min 0.05");
put("$r/cgroup.procs",$$);
attr(0x20,700,0); attr(0x60,0xffffffff,0xffffffff); show("reset");
attr(0,0,0,1,5); show("fifo without request");
attr(0x40,0,300,1,5); show("fifo max 300");
attr(0,0,0,0,0); attr(0x40,0,300,1,5); show("fifo with max 300 at once");
attr(0x20,1025,0);
